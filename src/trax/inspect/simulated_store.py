"""The store of a simulation, as its servers use it, and the topics that their transactions announce."""

from __future__ import annotations

from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from trax.events import Topic
from trax.store import Store
from trax.store.announce import Announcer
from trax.store.pipeline import commit_together
from trax.store.url import IN_MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from trax.clock import Clock
    from trax.inspect.simulation import Simulation
    from trax.inspect.virtual_server import VirtualServer
    from trax.store import Connection
    from trax.store.pipeline import BoundStatement, Rows


P = ParamSpec("P")
T = TypeVar("T")


class InlineStore(Store):
    """A store whose async calls run at once, in the thread of the caller."""

    async def call(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return self.run(function, *args, **kwargs)

    async def ask(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return self.read(function, *args, **kwargs)

    async def call_alone(self, statement: BoundStatement, topic: Topic) -> Rows:
        return self.run_alone(statement, topic)

    async def call_together(self, *statements: BoundStatement) -> list[Rows]:
        return self.run(commit_together, *statements)


class ServerStore(InlineStore):
    """The store of a simulation as one server uses it, with the faults of its transactions.

    A transaction is named after its function.
    """

    def __init__(self, simulation: Simulation, server: VirtualServer) -> None:
        vars(self).update(vars(simulation.store))
        self._simulation, self._server = simulation, server

    async def call(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        step = getattr(function, "__name__", "transaction").strip("_")
        with self._simulation.transaction(self._server, step):
            return self._simulation.store.run(function, *args, **kwargs)

    async def ask(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return self._simulation.read(function, *args, **kwargs)

    async def call_together(self, *statements: BoundStatement) -> list[Rows]:
        with self._simulation.transaction(self._server, "call_together"):
            return await self._simulation.store.call_together(*statements)


class TopicCollector(Announcer):
    """Collects the topics of committed transactions, for the simulation to deliver."""

    def __init__(self) -> None:
        super().__init__(sends=False)
        self._topics: set[Topic] = set()
        self._for_others: set[Topic] = set()

    def emit(self, topics: AbstractSet[Topic]) -> None:
        self._topics |= topics

    def notify_others(self, connection: Connection, topic: Topic) -> None:  # noqa: ARG002
        self._for_others.add(topic)

    def take(self) -> list[tuple[Topic, bool]]:
        """The topics since the last call, in a fixed order, and whether each is for other servers alone."""
        if not (self._topics or self._for_others):
            return []
        topics, for_others = self._topics, self._for_others - self._topics
        self._topics, self._for_others = set(), set()
        return [(topic, topic in for_others) for topic in Topic if topic in topics or topic in for_others]


def open_in_memory(clock: Clock, announcer: Announcer) -> InlineStore:
    return InlineStore(IN_MEMORY, clock=clock, announcer=announcer)
