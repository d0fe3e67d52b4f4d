"""The ear of a process: what others announce wakes its loops, as if it had happened here."""

from __future__ import annotations

import logging
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from trax.errors import StoreError
from trax.store.listening import Bell, Line

if TYPE_CHECKING:
    from collections.abc import Callable

    from trax.store.announcing import Announcer
    from trax.store.engine import Timeouts

logger = logging.getLogger(__name__)

GATHER_SECONDS: Final = 0.005
"""What is said within this time of the last word is heard together, so that a flood wakes nobody twice."""

SILENCE_SECONDS: Final = 60.0
PAUSES: Final = (0.5, 1.0, 2.0, 5.0)
CLOSE_SECONDS: Final = 2.0


class Ear:
    """Listens in a thread of its own until closed, through any number of lost connections."""

    def __init__(
        self,
        address: str,
        announcer: Announcer,
        *,
        timeouts: Timeouts | None = None,
        pause: Callable[[Event, float], object] = Event.wait,
    ) -> None:
        self._address = address
        self._announcer = announcer
        self._timeouts = timeouts
        self._pause = pause
        self._bell = Bell()
        self._is_closed = Event()
        self._failures = 0
        self._thread = Thread(target=self._run, name="trax listening", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening. A connection that is just being made is not waited for."""
        self._bell.ring()
        self._is_closed.set()  # in this order: the thread takes the bell down when it sees this
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._is_closed.is_set():
            try:
                with Line.opened(self._address, self._bell, self._timeouts) as line:
                    self._note_return()
                    self._announcer.hear_all()  # whatever was said before went unheard
                    self._hear(line)
            except StoreError as error:
                self._note_loss(error)
            except Exception:
                logger.exception("listening failed, trying again")
                self._failures += 1
            if not self._is_closed.is_set():
                self._pause(self._is_closed, PAUSES[min(self._failures, len(PAUSES)) - 1])
        self._bell.close()

    def _hear(self, line: Line) -> None:
        while not self._is_closed.is_set():
            self._announcer.hear(line.heard(SILENCE_SECONDS))
            self._is_closed.wait(GATHER_SECONDS)

    def _note_loss(self, error: StoreError) -> None:
        self._failures += 1
        if self._failures == 1:
            logger.warning("cannot listen, so only polling wakes this process: %s", error)

    def _note_return(self) -> None:
        if self._failures:
            logger.info("listening again")
        self._failures = 0
