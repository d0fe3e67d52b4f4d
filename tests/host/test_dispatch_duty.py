from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from trax import Trax
from trax.engine.job_dispatcher import DispatchResult
from trax.errors import StoreUnavailable
from trax.events import Topic
from trax.server.loops import DispatchLoop
from trax.store import Store
from trax.store.gate_memory import Candidate, GateBounds, GateMemory, QueueBound

if TYPE_CHECKING:
    from collections.abc import Callable

    from trax.store.pipeline import BoundStatement, Rows

NOTHING = DispatchResult(
    metadata_ids=[],
    entry_ids=[],
    claimed=[],
    is_limited=False,
    is_out_of_slots=False,
    run_again=False,
    next_in_seconds=None,
)
REFUSED = replace(NOTHING, is_limited=True)
LEFT = replace(REFUSED, has_waiting_entries=True)


class Notified:
    """Keeps what other processes are notified of."""

    def __init__(self) -> None:
        self.topics: list[Topic] = []

    def notify_others(self, _connection: None, topic: Topic) -> None:
        self.topics.append(topic)


class Gate:
    """A database in which a cycle ends as the test wants; `meanwhile` happens while it is under way."""

    dialect_name = "sqlite"

    def __init__(self) -> None:
        self.result = NOTHING
        self.meanwhile: Callable[[], object] = list[int]
        self.seconds_to_next: float | None = None
        self.announcer = Notified()

    async def call(self, function: Any, *arguments: Any) -> DispatchResult | None:
        if function == self.announcer.notify_others:
            function(None, *arguments)
            return None
        self.meanwhile()
        return self.result

    async def ask(self, *_: Any) -> float | None:
        return self.seconds_to_next

    def statement_now(self) -> None:
        return None


class Watched(DispatchLoop):
    """Counts the turns that somebody asked for."""

    def __init__(self, gate: Gate) -> None:
        store: Any = gate
        super().__init__(Trax("memory://").context, store)
        self.wakes = 0
        self.loop.wake = self._count
        self._memory = GateMemory(lambda: 0.0)

    def _count(self) -> None:
        self.wakes += 1

    def count_servers(self, workers: int) -> None:
        """So many workers and schedulers there were when a cycle last counted them."""
        self._fleets.workers = workers

    def remember(self, bounds: GateBounds) -> None:
        self._memory.take()
        self._memory.remember(bounds)

    @property
    def bounds(self) -> GateBounds:
        return self._memory.take()


@pytest.fixture
async def gate() -> Gate:
    return Gate()


async def test_a_freed_slot_wakes_the_dispatcher_only_after_a_refusal(gate: Gate) -> None:
    dispatching = Watched(gate)

    await dispatching.turn()
    dispatching.on_runs_ended()
    assert dispatching.wakes == 0

    gate.result = REFUSED
    await dispatching.turn()
    dispatching.on_runs_ended()
    assert dispatching.wakes == 1


async def test_a_slot_freed_during_a_refusal_requests_another_turn(gate: Gate) -> None:
    dispatching = Watched(gate)
    gate.result = REFUSED

    assert await dispatching.turn() is None

    gate.meanwhile = dispatching.on_runs_ended
    assert await dispatching.turn() == 0


async def test_a_slot_freed_without_a_refusal_requests_no_turn(gate: Gate) -> None:
    dispatching = Watched(gate)
    gate.meanwhile = dispatching.on_runs_ended

    assert await dispatching.turn() is None


async def test_a_poll_reads_the_queue_from_its_start(gate: Gate) -> None:
    """If a bound was ever wrong, an entry would otherwise wait until the server restarts."""
    dispatching = Watched(gate)
    gate.seconds_to_next = 0.0
    last = Candidate(1, "work", None, None, True, 0, 0, datetime(2027, 3, 1, tzinfo=UTC))
    bounds = GateBounds(QueueBound("1:1:", last))

    dispatching.remember(bounds)
    await dispatching.turn()
    assert dispatching.bounds == bounds, "it was woken"

    dispatching.remember(bounds)
    dispatching.loop.is_requested = False
    await dispatching.turn()
    assert dispatching.bounds == GateBounds()


async def test_other_servers_are_notified_once_of_ready_entries_left(gate: Gate) -> None:
    """One of them may have a free slot, and was not told of entries that this process has queued."""
    dispatching = Watched(gate)
    dispatching.count_servers(2)

    async def turns(*results: DispatchResult) -> list[Topic]:
        gate.announcer.topics.clear()
        for gate.result in results:
            await dispatching.turn()
        return gate.announcer.topics

    assert await turns(NOTHING, REFUSED) == []
    assert await turns(LEFT, LEFT) == [Topic.WORK_QUEUE]
    assert await turns(NOTHING, LEFT) == [Topic.WORK_QUEUE]


async def test_a_single_server_sends_no_notification_of_entries_left(gate: Gate) -> None:
    dispatching = Watched(gate)
    dispatching.count_servers(1)
    gate.result = LEFT

    await dispatching.turn()

    assert gate.announcer.topics == []


async def test_slots_that_bind_are_refilled_without_a_poll(url: str) -> None:
    app = Trax(url, polling_interval=3600, local_polling_interval=3600, max_active_jobs=2)
    ran, all_ran = list[int](), asyncio.Event()

    @app.train
    async def note(number: int) -> None:
        ran.append(number)
        if len(ran) == 50:
            all_ran.set()

    async with asyncio.timeout(60), app:
        await app.queue_many(note, range(50))
        await all_ran.wait()

    assert sorted(ran) == list(range(50))


class Traffic:
    """Counts the statements of each transaction that a store sends in one round trip; may refuse some."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.refused = 0
        send = Store.call_together

        async def call_together(store: Store, *statements: BoundStatement) -> list[Rows]:
            self.sizes.append(len(statements))
            if len(statements) == BOTH and self.refused < MOST_REFUSED:
                self.refused += 1
                raise StoreUnavailable("the connection was lost")
            return await send(store, *statements)

        monkeypatch.setattr(Store, "call_together", call_together)


BOTH = 3
"""The lock of the gate, the ends of runs, and the visit to the gate."""
MOST_REFUSED = 2


async def run_under_a_limit(url: str, count: int) -> list[int]:
    app = Trax(url, max_active_jobs=2)
    ran = list[int]()

    @app.train
    async def note(number: int) -> None:
        ran.append(number)

    async with asyncio.timeout(60), app:
        entries = await app.queue_many(note, range(count))
        for entry in entries:
            await entry.wait()
    return ran


async def test_while_a_limit_binds_one_transaction_ends_runs_and_admits_the_next(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic = Traffic(monkeypatch)
    traffic.refused = MOST_REFUSED

    ran = await run_under_a_limit(postgres_url, 40)

    assert sorted(ran) == list(range(40))
    assert traffic.sizes.count(BOTH) > 10


async def test_if_that_transaction_fails_the_results_are_written_and_no_job_runs_twice(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic = Traffic(monkeypatch)

    ran = await run_under_a_limit(postgres_url, 40)

    assert traffic.refused == MOST_REFUSED
    assert sorted(ran) == list(range(40))
