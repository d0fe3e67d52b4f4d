from __future__ import annotations

import asyncio
import re
from contextlib import contextmanager
from dataclasses import FrozenInstanceError, dataclass
from typing import TYPE_CHECKING, Any

import pytest

from trax.errors import WiringError
from trax.train import Failed, Services, TrainExceptionData, junction, short_circuit, train

if TYPE_CHECKING:
    from collections.abc import Generator

made: list[str] = []


@dataclass
class Order:
    number: int


@junction
async def check(order: Order) -> int:
    return order.number


@junction
async def check_number(number: int) -> int:
    return number


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


async def test_the_exception_names_the_junction_and_the_run() -> None:
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


async def test_a_missing_value_is_reported_like_any_failure() -> None:
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


class PanicException(BaseException):
    """As libraries written in Rust raise it."""


@pytest.mark.parametrize(
    "error", [SystemExit(3), GeneratorExit("early"), PanicException("index out of bounds")]
)
async def test_an_error_that_is_no_exception_fails_the_run(error: BaseException) -> None:
    @junction
    async def leave(_order: Order) -> int:
        raise error

    @junction
    def leave_blocking(_order: Order) -> int:
        raise error

    alone = await failure_of(train("async", leave))
    in_thread = await failure_of(train("blocking", leave_blocking))
    beside_async = await failure_of(train("mixed", leave_blocking >> check_number))
    here = train("here", leave_blocking).attempt_blocking(Order(1))

    assert isinstance(here, Failed)
    for failed in (alone, in_thread, beside_async, here):
        assert failed.error is error
        assert (failed.failure.type, failed.failure.message) == (type(error).__name__, str(error))
    assert (alone.failure.junction, beside_async.failure.junction) == ("leave", "leave_blocking")


async def test_an_error_that_is_no_exception_reaches_a_direct_caller_unchanged() -> None:
    @junction
    async def panic(order: Order) -> int:
        raise PanicException(order.number)

    @junction
    def leave(order: Order) -> int:
        raise SystemExit(order.number)

    with pytest.raises(PanicException):
        await train("panic", panic).run(Order(3))
    with pytest.raises(SystemExit):
        await train("leave", leave).run(Order(3))
    with pytest.raises(SystemExit):
        train("leave", leave).run_blocking(Order(3))


async def test_a_short_circuit_that_raises_what_is_no_exception_fails_the_run() -> None:
    @junction
    async def panic(order: Order) -> int:
        raise PanicException(order.number)

    failed = await failure_of(train("short", short_circuit(panic) >> check))

    assert failed.failure.type == "PanicException"


async def test_an_error_of_a_service_that_is_no_exception_fails_the_run() -> None:
    class Client: ...

    @contextmanager
    def closing_badly() -> Generator[Client]:
        yield Client()
        raise SystemExit(4)

    def made_badly() -> Client:
        raise PanicException("no client")

    @junction
    async def use(order: Order, _client: Client) -> int:
        return order.number

    for factory, said in {closing_badly: "SystemExit", made_badly: "PanicException"}.items():
        services = Services()
        services.provide(Client, factory)
        failed = await failure_of(train("use", use, services=services))
        assert failed.failure.type == said


async def test_an_interrupt_in_a_thread_fails_the_run_and_one_in_the_main_thread_is_for_the_process() -> None:
    @junction
    def interrupt(order: Order) -> int:
        raise KeyboardInterrupt(order.number)

    @junction
    async def interrupt_the_loop(order: Order) -> int:
        raise KeyboardInterrupt(order.number)

    in_thread = await failure_of(train("thread", interrupt))
    beside_async = await failure_of(train("mixed", interrupt >> check_number))

    assert [each.failure.type for each in (in_thread, beside_async)] == ["KeyboardInterrupt"] * 2
    with pytest.raises(KeyboardInterrupt):
        train("here", interrupt).attempt_blocking(Order(3))
    coroutine = train("loop", interrupt_the_loop).attempt(Order(3))
    with pytest.raises(KeyboardInterrupt):
        coroutine.__await__().__next__()


def test_a_run_whose_coroutine_is_closed_has_not_failed() -> None:
    closed: list[GeneratorExit] = []

    @junction
    async def wait(order: Order) -> int:
        try:
            await asyncio.Event().wait()
        except GeneratorExit as error:
            closed.append(error)
            raise
        return order.number

    loop = asyncio.new_event_loop()
    coroutine = train("wait", wait).attempt(Order(1))
    task = loop.create_task(coroutine)
    loop.run_until_complete(asyncio.sleep(0))

    coroutine.close()

    assert getattr(closed[0], "trax_data", None) is None
    task.cancel()
    loop.run_until_complete(asyncio.wait([task]))
    loop.close()
