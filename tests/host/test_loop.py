from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

from trax.errors import StoreUnavailable
from trax.worker import loop as loops
from trax.worker.loop import Loop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LONG = 3600.0


async def ran(turn: Callable[[Loop], Awaitable[float | None]], poll_seconds: float = LONG) -> Loop:
    """Run a loop whose turn gets the loop itself, until the turn stops it."""

    async def turning() -> float | None:
        return await turn(loop)

    loop = Loop("test", turning, poll_seconds=lambda: poll_seconds)
    async with asyncio.timeout(30):
        await loop.run()
    return loop


async def test_a_turn_that_wants_another_gets_it_at_once() -> None:
    turns: list[int] = []

    async def turn(loop: Loop) -> float | None:
        turns.append(len(turns))
        if len(turns) == 3:
            loop.stop()
        return 0

    await ran(turn)

    assert turns == [0, 1, 2]


async def test_a_loop_has_a_failure_once_three_turns_in_a_row_have_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures: list[str | None] = []

    async def turn(loop: Loop) -> float | None:
        failures.append(loop.failure)
        if len(failures) <= 3:
            raise ValueError("a\nb" + "c" * 1000)
        if len(failures) == 5:
            loop.stop()
        return 0

    monkeypatch.setattr(loops, "PAUSES", (0.0,))
    await ran(turn)

    *before, failed, recovered = failures
    assert before == [None, None, None]
    assert failed is not None
    assert (failed[:20], len(failed)) == ("ValueError: a\\nbcccc", 301)
    assert recovered is None


async def test_a_wake_up_during_a_turn_is_not_lost() -> None:
    turns: list[int] = []

    async def turn(loop: Loop) -> float | None:
        turns.append(len(turns))
        loop.wake()
        await asyncio.sleep(0)
        if len(turns) == 2:
            loop.stop()
        return None

    await ran(turn)

    assert turns == [0, 1]


@pytest.mark.parametrize("trouble", [ValueError("x"), StoreUnavailable("gone")])
async def test_a_turn_that_fails_does_not_end_the_loop(
    trouble: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    turns: list[int] = []

    async def turn(loop: Loop) -> float | None:
        turns.append(len(turns))
        if len(turns) == 1:
            raise trouble
        loop.stop()
        return None

    await ran(turn, poll_seconds=0.001)

    assert turns == [0, 1]
    assert "loop test: a turn failed; trying again" in caplog.text


async def test_turns_never_overlap() -> None:
    inside = 0
    turns: list[int] = []

    async def turn(loop: Loop) -> float | None:
        nonlocal inside
        inside += 1
        for _ in range(3):
            loop.wake()
            await asyncio.sleep(0)
        turns.append(inside)
        inside -= 1
        if len(turns) == 5:
            loop.stop()
        return None

    await ran(turn)

    assert turns == [1] * 5


async def test_any_thread_may_wake_a_loop() -> None:
    turns = asyncio.Queue[int]()

    async def turn() -> float | None:
        turns.put_nowait(1)
        return None

    loop = Loop("test", turn, poll_seconds=lambda: LONG)
    running = asyncio.create_task(loop.run())
    await turns.get()

    await asyncio.to_thread(loop.wake)

    async with asyncio.timeout(30):
        await turns.get()
    loop.stop()
    await running


async def test_a_repeated_failure_is_logged_once_and_so_is_its_recovery(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    turns: list[int] = []

    async def turn(loop: Loop) -> float | None:
        turns.append(len(turns))
        if len(turns) <= 5:
            raise StoreUnavailable("gone")
        if len(turns) == 7:
            loop.stop()
        return 0

    await ran(turn, poll_seconds=0.001)

    assert [record.getMessage() for record in caplog.records] == [
        "loop test: a turn failed; trying again: gone",
        "loop test: recovered after 5 failed turns",
    ]


async def test_a_loop_that_polls_rarely_does_not_wait_that_long_after_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    async def noted(_event: asyncio.Event, seconds: float) -> bool:
        waits.append(seconds)
        return False

    monkeypatch.setattr(loops, "is_set_within", noted)

    async def turn(loop: Loop) -> float | None:
        if len(waits) == 5:
            loop.stop()
        raise ValueError

    await ran(turn)

    assert waits == [0.5, 1, 2, 5, 5, 5]


async def test_a_turn_knows_whether_it_was_requested() -> None:
    asked: list[bool] = []
    answers = iter([0, 0.0005, None, None, 0])

    async def turn(loop: Loop) -> float | None:
        asked.append(loop.is_requested)
        if len(asked) == 4:
            loop.wake()
        if len(asked) == 5:
            loop.stop()
        return next(answers)

    await ran(turn, poll_seconds=0.001)

    assert asked == [True, True, True, False, True]


async def test_another_kind_of_failure_is_news(caplog: pytest.LogCaptureFixture) -> None:
    troubles = iter(
        [StoreUnavailable("gone"), StoreUnavailable("gone"), KeyError("a bug"), KeyError("a bug")]
    )

    async def turn(loop: Loop) -> float | None:
        for trouble in troubles:
            raise trouble
        loop.stop()
        return None

    await ran(turn, poll_seconds=0.001)

    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]


async def test_the_first_turn_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float | None] = []

    async def is_set_within(_event: asyncio.Event, seconds: float | None) -> bool:
        waited.append(seconds)
        return False

    async def turn() -> float | None:
        assert waited == [2], "before the first turn"
        loop.stop()
        return None

    monkeypatch.setattr(loops, "is_set_within", is_set_within)
    loop = Loop("test", turn, poll_seconds=lambda: LONG, first_after=2)
    await loop.run()

    assert loop.turns == 1


async def test_a_delayed_first_turn_can_be_requested_and_stopped() -> None:
    async def turn() -> float | None:
        assert loop.is_requested
        loop.stop()
        return None

    loop = Loop("test", turn, poll_seconds=lambda: LONG, first_after=LONG / 2)
    async with asyncio.timeout(30):
        running = asyncio.create_task(loop.run())
        await asyncio.sleep(0)
        loop.wake()
        await running
    assert loop.turns == 1

    stopped = Loop("test", turn, poll_seconds=lambda: LONG, first_after=LONG / 2)
    stopped.stop()
    async with asyncio.timeout(30):
        await stopped.run()
    assert stopped.turns == 0


async def test_a_wake_up_before_the_loop_runs_does_not_bring_its_first_turn_forward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    was_woken: list[bool] = []

    async def is_set_within(event: asyncio.Event, _seconds: float | None) -> bool:
        was_woken.append(event.is_set())
        return False

    async def turn() -> float | None:
        loop.stop()
        return None

    monkeypatch.setattr(loops, "is_set_within", is_set_within)
    loop = Loop("test", turn, poll_seconds=lambda: LONG, first_after=2)
    loop.wake()
    await asyncio.sleep(0)
    await loop.run()

    assert was_woken[0] is False


def test_a_server_runs_in_uvloop_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def name_of_loop() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert loops.run_server(name_of_loop()) == "uvloop"

    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert loops.run_server(name_of_loop()).startswith("asyncio")


async def test_a_turn_whose_cause_was_repaired_follows_at_once_and_any_other_waits() -> None:
    failures: list[str] = []

    async def turn() -> float | None:
        raise ValueError("a row of odd content")

    async def repair(error: Exception) -> bool:
        failures.append(str(error))
        if len(failures) == 2:
            loop.stop()
            raise RuntimeError("the repair fails too")
        return True

    loop = Loop("test", turn, poll_seconds=lambda: LONG)
    loop.repair = repair
    async with asyncio.timeout(30):
        await loop.run()

    assert failures == ["a row of odd content"] * 2
