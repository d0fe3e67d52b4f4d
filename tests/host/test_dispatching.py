from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from trax import Trax
from trax.engine.job_dispatcher import DispatchResult
from trax.server.loops import DispatchLoop

if TYPE_CHECKING:
    from collections.abc import Callable

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


class Gate:
    """A database in which a cycle ends as the test wants; `meanwhile` happens while it is under way."""

    dialect_name = "sqlite"

    def __init__(self) -> None:
        self.result = NOTHING
        self.meanwhile: Callable[[], object] = list[int]

    async def call(self, *_: Any) -> DispatchResult:
        self.meanwhile()
        return self.result

    async def ask(self, *_: Any) -> None:
        return None

    def statement_now(self) -> None:
        return None


class Watched(DispatchLoop):
    """Counts the turns that somebody asked for."""

    def __init__(self, gate: Gate) -> None:
        store: Any = gate
        super().__init__(Trax("memory://").parts, store)
        self.wakes = 0
        self.loop.wake = self._count

    def _count(self) -> None:
        self.wakes += 1

    async def turn(self) -> float | None:
        return await self._turn()


@pytest.fixture
async def gate() -> Gate:
    return Gate()


async def test_a_freed_slot_wakes_the_dispatcher_only_if_it_has_refused_somebody(gate: Gate) -> None:
    dispatching = Watched(gate)

    await dispatching.turn()
    dispatching.on_runs_ended()
    assert dispatching.wakes == 0

    gate.result = REFUSED
    await dispatching.turn()
    dispatching.on_runs_ended()
    assert dispatching.wakes == 1


async def test_a_slot_freed_while_somebody_is_being_refused_asks_for_another_turn(gate: Gate) -> None:
    dispatching = Watched(gate)
    gate.result = REFUSED

    assert await dispatching.turn() is None

    gate.meanwhile = dispatching.on_runs_ended
    assert await dispatching.turn() == 0


async def test_a_slot_freed_while_nobody_is_refused_asks_for_nothing(gate: Gate) -> None:
    dispatching = Watched(gate)
    gate.meanwhile = dispatching.on_runs_ended

    assert await dispatching.turn() is None


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
