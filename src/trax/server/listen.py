"""LISTEN connection of a process: announcements of other processes wake its loops."""

from __future__ import annotations

import logging
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from trax.errors import StoreError
from trax.store.listen import ListenConnection, Waker

if TYPE_CHECKING:
    from collections.abc import Callable

    from trax.store.announce import Announcer
    from trax.store.engine import Timeouts

logger = logging.getLogger(__name__)
BATCH_SECONDS: Final = 0.001
"""Announcements within this time are handled together, so that a burst wakes each loop once."""

WAIT_SECONDS: Final = 60.0
PAUSES: Final = (0.5, 1.0, 2.0, 5.0)
CLOSE_SECONDS: Final = 2.0


class Listener:
    """Listens in its own thread until closed, and reconnects when the connection is lost."""

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
        self._wake_up = Waker()
        self._is_closed = Event()
        self._has_tried = Event()
        self._failures = 0
        self._thread = Thread(target=self._run, name="trax listener", daemon=True)
        self._thread.start()

    def wait_for_first_try(self, seconds: float) -> None:
        """Wait until it is connected, or has failed to connect once; no longer than this."""
        self._has_tried.wait(seconds)

    def close(self) -> None:
        """Stop listening. Does not wait for a connection attempt in progress."""
        self._wake_up.wake()
        self._is_closed.set()  # last: the thread closes the waker once it sees this
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._is_closed.is_set():
            try:
                with ListenConnection.open(self._address, self._wake_up, self._timeouts) as line:
                    self._log_recovery()
                    self._announcer.emit_all()  # announcements before the connection were missed
                    self._has_tried.set()
                    self._receive(line)
            except StoreError as error:
                self._log_loss(error)
            except Exception:
                logger.exception("listener failed; connecting again")
                self._failures += 1
            self._has_tried.set()
            if not self._is_closed.is_set():
                self._pause(self._is_closed, PAUSES[min(self._failures, len(PAUSES)) - 1])
        self._wake_up.close()

    def _receive(self, line: ListenConnection) -> None:
        while not self._is_closed.is_set():
            self._announcer.receive(line.receive(WAIT_SECONDS))
            self._is_closed.wait(BATCH_SECONDS)

    def _log_loss(self, error: StoreError) -> None:
        self._failures += 1
        if self._failures == 1:
            logger.warning("listener is not connected; this process relies on polling: %s", error)

    def _log_recovery(self) -> None:
        if self._failures:
            logger.info("listener connected again")
        self._failures = 0
