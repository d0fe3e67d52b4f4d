"""Simulated servers on PostgreSQL, with the connections of a real server and faults on the way to it.

Transactions go through pooled connections, quick visits and results through the direct connection of an event
loop. A fault that is drawn for a transaction is made by the proxy, where it commits.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tests.support.complete import complete
from tests.support.fault_proxy import Fault

from trax.errors import StoreUnavailable
from trax.inspect.simulated_store import InlineStore
from trax.inspect.simulation import ServerCrash, Simulation, TransactionFault
from trax.store import Store

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator
    from datetime import datetime

    from tests.support.fault_proxy import FaultProxy

    from trax.clock import Clock
    from trax.events import Topic
    from trax.inspect.simulation import EventLog
    from trax.inspect.virtual_server import VirtualServer
    from trax.store.announce import Announcer
    from trax.store.pipeline import BoundStatement, Rows

T = TypeVar("T")

ON_THE_WAY: Final = {
    TransactionFault.REFUSED: (Fault.REFUSED, Fault.LOST_BEFORE),
    TransactionFault.RESPONSE_LOST: (Fault.LOST_AFTER, Fault.CUT),
}
"""The faults of a transaction that happen between us and the server."""
PASSING: Final = ("40001", "53100")
"""Refusals after which a transaction is tried again."""


class DirectStore(InlineStore):
    """A store whose short transactions take the direct connection of the event loop, as in a server."""

    async def call_alone(self, statement: BoundStatement, topic: Topic) -> Rows:
        return await Store.call_alone(self, statement, topic)

    async def call_together(self, *statements: BoundStatement) -> list[Rows]:
        return await Store.call_together(self, *statements)


class PostgresqlSimulation(Simulation):
    """A simulation whose store is behind a proxy that makes the faults."""

    def __init__(self, seed: int, start: datetime, proxy: FaultProxy, event_log: EventLog | None) -> None:
        self.proxy = proxy

        def open_store(clock: Clock, announcer: Announcer) -> InlineStore:
            return DirectStore(proxy.url, clock=clock, announcer=announcer)

        super().__init__(seed, start, event_log=event_log, open_store=open_store)

    def complete(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return complete(coroutine)

    @contextmanager
    def transaction(self, server: VirtualServer, step: str) -> Generator[None]:
        if not self.is_database_up:
            raise StoreUnavailable("the database is unavailable")
        fault = self.faults.of_transaction(server, step)
        if fault is not None:
            self.event_log.add(self.now, server.name, "%s: %s", step, fault.value)
        if fault is TransactionFault.CRASH_BEFORE:
            raise ServerCrash
        if fault in ON_THE_WAY:
            self.proxy.refusal = self.random.choice(PASSING)
            self.proxy.inject(self.random.choice(ON_THE_WAY[fault]))
        try:
            yield
        finally:
            self.proxy.clear()
            self.settle(step, server)  # it may be committed although there was an error
        if fault is TransactionFault.CRASH_AFTER:
            raise ServerCrash
        if fault is TransactionFault.PAUSE_AFTER:
            server.suspend(self.faults.pause_seconds())
