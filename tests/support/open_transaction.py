"""Transactions that stay open until a test ends them, for tests of locks."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future, ThreadPoolExecutor

    from tests.support.manager_harness import ManagerHarness

    from trax.store import Connection

TIMEOUT_SECONDS = 30
WAITING = text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


class OpenTransaction:
    """Something done in a transaction that stays open until it is let go."""

    def __init__(
        self, h: ManagerHarness, threads: ThreadPoolExecutor, work: Callable[[Connection], Any]
    ) -> None:
        self._done, self._go = Event(), Event()
        self.future: Future[Any] = threads.submit(h.store.run, self._held, work)
        assert self._done.wait(TIMEOUT_SECONDS)

    def _held(self, connection: Connection, work: Callable[[Connection], Any]) -> Any:
        try:
            result = work(connection)
        finally:
            self._done.set()
        assert self._go.wait(TIMEOUT_SECONDS)
        return result

    def let_go(self) -> Any:
        self._go.set()
        return self.future.result(TIMEOUT_SECONDS)


def wait_for_lock_waiter(h: ManagerHarness, others: int = 1) -> None:
    """Return once so many transactions wait for a lock of another."""
    until(lambda: h.store.read(lambda connection: connection.execute(WAITING).scalar_one()) >= others)
