"""The process that speaks to Ray for us, and the lines we exchange with it.

A process that is connected to a Ray cluster is ended by Ray when the cluster goes away, without a word and
without a chance to object. That must not happen to a scheduler, so another process holds the connection.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final, TextIO

from trax.errors import TraxError

LEAVE_SECONDS: Final = 5
PROGRAM: Final = "trax.submitters.ray.driver"


class Link:
    """A question a line, an answer a line. The process ends when we are gone."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for us: what is under way is still to be handed over
        )
        assert self._process.stdin  # noqa: S101 - pipes were asked for
        assert self._process.stdout  # noqa: S101
        self._questions = self._process.stdin
        self._answers: SimpleQueue[str] = SimpleQueue()
        listening = Thread(
            target=self._listen, args=(self._process.stdout,), name="trax ray link", daemon=True
        )
        listening.start()
        with suppress(OSError):  # whoever asks will learn that it has ended
            self._say(config)

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def ask(self, question: Any, seconds: float) -> dict[str, Any]:
        """The answer; raises TraxError when Ray fails, or says nothing."""
        try:
            self._say(question)
            line = self._answers.get(timeout=seconds)
        except Empty:
            raise TraxError(f"Ray has not answered within {seconds:g} s") from None
        except OSError:
            line = ""
        if not line:
            raise TraxError("the connection to Ray is lost; see what its process wrote to stderr")
        answer = json.loads(line)
        if "failed" in answer:
            raise TraxError(f"Ray did not take it: {answer['failed']}")
        return answer

    def close(self) -> None:
        """It ends by itself when nobody asks any more, unless Ray holds it up."""
        with suppress(OSError):  # it may have ended before it had read all
            self._questions.close()
        try:
            self._process.wait(LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _say(self, words: Any) -> None:
        self._questions.write(json.dumps(words) + "\n")
        self._questions.flush()

    def _listen(self, said: TextIO) -> None:
        with said:
            for line in said:
                self._answers.put(line)
        self._answers.put("")
