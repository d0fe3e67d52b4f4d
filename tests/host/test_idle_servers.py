"""Queries of an idle server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event
from tests.support import listing

from trax import Trax, every
from trax.records import QueueStatus
from trax.server import loops as server_loops
from trax.worker import loop as worker_loops
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trax.records import WorkQueueEntry
    from trax.store import Connection, Store
    from trax.worker.loop import Loop

A_FEW = 5.0


class Counter:
    """Counts the statements that reach the database."""

    def __init__(self, store: Store) -> None:
        self.statements: list[str] = []
        engine = store._engine  # pyright: ignore[reportPrivateUsage]
        event.listen(engine, "before_cursor_execute", self._note)

    def _note(self, _connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith("BEGIN"):
            self.statements.append(statement)

    async def of_a_poll(self, loop: Loop) -> int:
        """How many statements a turn costs that nobody asked for."""
        loop.is_requested = False
        before = len(self.statements)
        await loop._turn()  # pyright: ignore[reportPrivateUsage]
        return len(self.statements) - before


@pytest.fixture
async def app(url: str) -> AsyncGenerator[Trax]:
    app = Trax(url)

    @app.train
    async def note(_word: str) -> None: ...

    app.schedule(note, "asleep", "x", every(hours=1), enabled=False)
    yield app
    app.close()


async def test_an_idle_server_runs_a_few_queries_a_second_in_all_roles_together(app: Trax) -> None:
    store, context = await app.context.store.open(), app.context
    worker = await Worker.start(context, store)
    counter = Counter(store)
    dispatching = server_loops.DispatchLoop(context, store)
    loops = [
        server_loops.manager(context, store),
        dispatching.loop,
        worker_loops.claimer(context, worker),
        worker_loops.finisher(context, store, worker, wake_dispatcher=dispatching.on_runs_ended),
        worker_loops.heartbeat(context, worker),
    ]

    a_second = 0.0
    for loop in loops:
        poll_seconds = loop._poll_seconds()  # pyright: ignore[reportPrivateUsage]
        a_second += await counter.of_a_poll(loop) / poll_seconds

    await worker.unregister()
    assert 0 < a_second <= A_FEW


async def test_an_idle_dispatcher_leaves_the_gate_lock_and_runs_two_queries_at_most(app: Trax) -> None:
    store = await app.context.store.open()
    counter = Counter(store)

    assert await counter.of_a_poll(server_loops.DispatchLoop(app.context, store).loop) <= 2

    assert not [statement for statement in counter.statements if "gate_lock" in statement]


async def test_a_poll_finds_an_entry_without_a_notification(app: Trax) -> None:
    store = await app.context.store.open()
    await Worker.start(app.context, store)
    await app.queue(app.trains.get("note"), "x")

    await Counter(store).of_a_poll(server_loops.DispatchLoop(app.context, store).loop)

    (entry,) = await store.ask(_dispatched)
    assert entry.metadata_id is not None


def _dispatched(connection: Connection) -> list[WorkQueueEntry]:
    return listing.entries(connection, status=QueueStatus.DISPATCHED)
