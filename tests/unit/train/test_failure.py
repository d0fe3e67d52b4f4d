from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, dataclass
from typing import Any

import pytest

from trax.errors import WiringError
from trax.train import Failed, TrainExceptionData, junction, train

made: list[str] = []


@dataclass
class Order:
    number: int


@junction
async def check(order: Order) -> int:
    return order.number


@junction
async def load(_number: int) -> float:
    raise ValueError("x")


@junction
class Publish:
    def __init__(self) -> None:
        made.append("Publish")

    async def __call__(self, number: float) -> str:
        return str(number)


sync_table = train("sync_table", check >> load >> Publish)


async def failure_of(whole: Any, **how: Any) -> Failed:
    outcome = await whole.attempt(Order(1), **how)
    assert isinstance(outcome, Failed)
    return outcome


def data_on(error: Any) -> TrainExceptionData:
    return error.trax_data


async def test_the_caller_meets_the_very_exception_and_the_rest_is_never_made() -> None:
    error = ValueError("x")

    @junction
    async def fail(_order: Order) -> float:
        raise error

    made.clear()

    with pytest.raises(ValueError, match="x") as caught:
        await train("fail", fail >> Publish).run(Order(1))
    assert caught.value is error
    assert str(error) == "x"
    assert made == []


async def test_the_exception_tells_where_it_was_raised() -> None:
    failed = await failure_of(sync_table)

    data = data_on(failed.error)

    assert data is failed.failure
    assert (data.train_name, data.type, data.junction, data.message) == (
        "sync_table",
        "ValueError",
        "load",
        "x",
    )
    assert re.fullmatch("[0-9a-f]{32}", data.train_external_id)
    assert 'raise ValueError("x")' in data.stack_trace
    assert "journey.py" not in data.stack_trace
    assert failed.error.__notes__ == [
        f"in junction 'load' of train 'sync_table' (run {data.train_external_id})"
    ]


async def test_the_run_is_named_as_the_caller_names_it() -> None:
    failed = await failure_of(sync_table, external_id="3f" * 16)

    assert failed.failure.train_external_id == "3f" * 16


async def test_a_missing_value_is_told_like_any_failure() -> None:
    whole = train("lost", check, output=Order, input=Order)
    failed = await failure_of(train("none", _gives_none))

    assert isinstance(failed.error, WiringError)
    assert failed.failure.junction == "_gives_none"
    assert (await whole.run(Order(2))).number == 2


@junction
async def _gives_none(_order: Order) -> int:
    return None  # pyright: ignore[reportReturnType]


async def test_the_innermost_train_stays_on_the_exception_and_each_run_has_its_own_account() -> None:
    @junction
    async def nest(order: Order) -> str:
        return await sync_table.run(order)

    failed = await failure_of(train("outer", nest))

    assert failed.failure.train_name == "outer"
    assert failed.failure.junction == "nest"
    assert data_on(failed.error).train_name == "sync_table"
    assert [note.split(" (")[0] for note in failed.error.__notes__] == [
        "in junction 'load' of train 'sync_table'",
        "in junction 'nest' of train 'outer'",
    ]


async def test_an_exception_that_refuses_attributes_still_gets_through() -> None:
    @dataclass(frozen=True)
    class FrozenError(Exception):
        code: int

    @junction
    async def fail(order: Order) -> int:
        raise FrozenError(order.number)

    failed = await failure_of(train("frozen", fail))

    assert failed.failure.type == "FrozenError"
    with pytest.raises((FrozenError, FrozenInstanceError)):
        raise failed.error


async def test_an_exception_without_a_readable_message_still_gets_through() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    @junction
    async def fail(order: Order) -> int:
        raise MuteError(order)

    failed = await failure_of(train("mute", fail))

    assert failed.failure.message == "<MuteError without a readable message>"


async def test_what_ends_the_program_is_no_failure() -> None:
    @junction
    async def leave(order: Order) -> int:
        raise SystemExit(order.number)

    @junction
    def leave_blocking(order: Order) -> int:
        raise KeyboardInterrupt(order.number)

    with pytest.raises(KeyboardInterrupt):
        train("leave", leave_blocking).run_blocking(Order(3))
    coroutine = train("leave", leave).attempt(Order(3))
    with pytest.raises(SystemExit):
        coroutine.__await__().__next__()
