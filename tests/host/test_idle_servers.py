"""Queries of an idle server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event
from tests.support import listing

from trax import Trax, every
from trax.records import QueueStatus
from trax.server.duties import build_duties
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trax.records import WorkQueueEntry
    from trax.store import Connection, Store
    from trax.worker.duties import Duty

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

    async def of_a_poll(self, duty: Duty) -> int:
        """How many statements a turn costs that nobody asked for."""
        before = len(self.statements)
        await duty.turn()
        return len(self.statements) - before


class Polls:
    """Turns that nothing has requested."""

    is_requested = False
    is_stopping = False

    def wake(self) -> None:
        """Every turn is a poll."""


def polled_duties(app: Trax, store: Store, **options: Any) -> dict[str, Duty]:
    return {duty.name: duty for duty in build_duties(app.context, store, lambda _: Polls(), **options)}


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
    of_worker = polled_duties(app, store, schedules=False, row=worker)
    of_scheduler = polled_duties(app, store)
    names = ("manifest_manager", "job_dispatcher")

    a_second = 0.0
    for duty in (*of_worker.values(), *(of_scheduler[name] for name in names)):
        a_second += await counter.of_a_poll(duty) / duty.poll_seconds()

    await worker.unregister()
    assert 0 < a_second <= A_FEW


async def test_an_idle_dispatcher_leaves_the_gate_lock_and_runs_two_queries_at_most(app: Trax) -> None:
    store = await app.context.store.open()
    counter = Counter(store)

    assert await counter.of_a_poll(polled_duties(app, store)["job_dispatcher"]) <= 2

    assert not [statement for statement in counter.statements if "gate_lock" in statement]


async def test_a_poll_finds_an_entry_without_a_notification(app: Trax) -> None:
    store = await app.context.store.open()
    await Worker.start(app.context, store)
    await app.queue(app.trains.get("note"), "x")

    await Counter(store).of_a_poll(polled_duties(app, store)["job_dispatcher"])

    (entry,) = await store.ask(_dispatched)
    assert entry.metadata_id is not None


def _dispatched(connection: Connection) -> list[WorkQueueEntry]:
    return listing.entries(connection, status=QueueStatus.DISPATCHED)
