"""A terminal of our own: commands run in it as if a person sat there, and what it shows is read as text."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import termios
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tests.support.preloaded import PreloadedProcess
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from pathlib import Path

ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
SIZE: Final = (40, 300)
"""Lines and columns; wide, so that what is looked for stands on one line."""
CTRL_C: Final = b"\x03"
SHOW_CURSOR: Final = "\x1b[?25h"
HIDE_CURSOR: Final = "\x1b[?25l"


class Terminal:
    """What a person sees and types."""

    def __init__(self, process: PreloadedProcess, keyboard: int) -> None:
        self.process = process
        self._keyboard = keyboard
        self._read = b""
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    @property
    def raw(self) -> str:
        """Everything that was written so far, with what steers the terminal."""
        return self._read.decode(errors="replace").replace("\r\n", "\n")

    @property
    def text(self) -> str:
        return ESCAPES.sub("", self.raw)

    def types(self, keys: bytes) -> None:
        os.write(self._keyboard, keys)

    def shows(self, *texts: str) -> None:
        """Wait until all of these have been shown."""
        try:
            until(lambda: all(text in self.text for text in texts))
        except AssertionError:
            missing = [text for text in texts if text not in self.text]
            raise AssertionError(f"{missing} is not in\n{self.text}") from None

    def ended(self) -> int:
        """Wait for the end, and for all that was said until then."""
        code = self.process.wait(timeout=60)
        self._reader.join(timeout=60)
        return code

    def modes(self) -> Any:
        """How the terminal is set: whether it echoes, what Ctrl-C does."""
        return termios.tcgetattr(self._keyboard)

    def _listen(self) -> None:
        while True:
            try:
                heard = os.read(self._keyboard, 65536)
            except OSError:
                return  # nobody holds the other end any more
            if not heard:
                return
            self._read += heard


@contextmanager
def terminal(
    words: Sequence[str | Path], *, folder: Path, environment: Mapping[str, str] | None = None
) -> Generator[Terminal]:
    """Run a command in a terminal of its own until the block ends."""
    keyboard, screen = pty.openpty()
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
    known = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    process = PreloadedProcess(
        words,
        cwd=folder,
        env={**known, "TERM": "xterm-256color", **(environment or {})},
        stdin=screen,
        stdout=screen,
        stderr=screen,
        start_new_session=True,
    )
    os.close(screen)
    shown = Terminal(process, keyboard)
    try:
        yield shown
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
        os.close(keyboard)
