from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

import pytest
from pydantic import BaseModel
from tests.support.databases import IN_MEMORY_TOO

from trax import Cancel, InvalidInput, Metadata, NotFound, RunCancelled, Trax, TraxError, current, junction
from trax.records import State
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import Generator

pytestmark = IN_MEMORY_TOO


class Hello(BaseModel):
    name: str
    times: int = 1


class Greeting(BaseModel):
    text: str


@pytest.fixture
def app(url: str) -> Generator[Trax]:
    made = Trax(url)
    yield made
    made.close()


async def only_record(app: Trax) -> Metadata:
    (record,) = await app.executions.list()
    return record


async def test_a_run_returns_its_output_and_leaves_a_record(app: Trax) -> None:
    @app.train(timeout=timedelta(seconds=30))
    async def greet(hello: Hello) -> Greeting:
        return Greeting(text=f"Hello, {hello.name}!")

    greeting = await app.run(greet, Hello(name="Ada"))

    record = await only_record(app)
    assert greeting == Greeting(text="Hello, Ada!")
    assert (record.train, record.state) == ("greet", State.COMPLETED)
    assert (record.input, record.output) == ({"name": "Ada", "times": 1}, {"text": "Hello, Ada!"})
    assert record.started_at
    assert record.ended_at
    assert record.created_at <= record.started_at <= record.ended_at
    assert record.host
    assert record.failure_exception is None


async def test_a_failing_run_raises_the_original_and_records_why(app: Trax) -> None:
    error = ValueError("x")

    @junction
    def load(_hello: Hello) -> Greeting:
        raise error

    train = app.train("loading", load)

    with pytest.raises(ValueError, match="x") as raised:
        await app.run(train, Hello(name="Ada"))

    record = await only_record(app)
    assert raised.value is error
    assert record.state is State.FAILED
    assert (record.failure_junction, record.failure_exception) == ("load", "ValueError")
    assert record.failure_reason == "x"
    assert "raise error" in (record.stack_trace or "")
    assert (record.input, record.output) == ({"name": "Ada", "times": 1}, None)


async def test_wrong_input_is_refused_before_anything_runs(app: Trax) -> None:
    @app.train
    async def greet(hello: Hello) -> Greeting:
        raise AssertionError(hello)

    wrong: Any = {"name": 5, "times": "often"}
    for refusing in (app.run(greet, wrong), app.queue(greet, wrong)):
        with pytest.raises(InvalidInput) as refused:
            await refusing

        assert [error.path for error in refused.value.errors] == ["name", "times"]
        assert "train 'greet': invalid input" in str(refused.value)
    assert await app.executions.list() == []


async def test_the_run_knows_itself_also_in_a_thread(app: Trax) -> None:
    seen: list[Any] = []

    @app.train
    def look(_: int) -> None:
        seen.append((threading.current_thread().name, current()))

    assert current() is None
    await app.run(look, 1)

    ((thread, run),) = seen
    record = await only_record(app)
    assert thread != threading.main_thread().name
    assert (run.metadata_id, run.external_id, run.train) == (record.id, record.external_id, "look")
    assert current() is None


async def test_a_nested_run_is_linked_to_its_parent(app: Trax) -> None:
    @app.train
    async def inner(number: int) -> int:
        return number + 1

    @app.train
    async def outer(number: int) -> int:
        return await app.run(inner, number)

    assert await app.run(outer, 1) == 2

    child, parent = await app.executions.list()
    assert (child.train, child.parent_id) == ("inner", parent.id)
    assert (parent.train, parent.parent_id) == ("outer", None)


async def test_cancelling_the_caller_ends_the_run_as_cancelled(app: Trax) -> None:
    started = asyncio.Event()

    @app.train
    async def wait(_: int) -> None:
        started.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(app.run(wait, 1))
    await started.wait()
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await only_record(app)).state is State.CANCELLED


async def test_a_caller_cancelled_during_a_start_hook_leaves_a_cancelled_record(app: Trax) -> None:
    reached = asyncio.Event()

    async def wait(_: Metadata) -> None:
        reached.set()
        await asyncio.Event().wait()

    @app.train(on_started=wait)
    async def work(_: int) -> None: ...

    running = asyncio.create_task(app.run(work, 1))
    await reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    record = await only_record(app)
    assert (record.state, record.failure_reason) == (State.CANCELLED, "the caller was cancelled")


async def test_a_run_may_cancel_itself(app: Trax) -> None:
    @app.train
    async def give_up(_: int) -> None:
        raise Cancel("nothing to do")

    with pytest.raises(RunCancelled, match="nothing to do"):
        await app.run(give_up, 1)

    record = await only_record(app)
    assert (record.state, record.failure_reason) == (State.CANCELLED, "nothing to do")


@pytest.mark.parametrize(
    ("ending", "told"),
    [
        (None, ["on_started in_progress", "on_completed completed"]),
        (ValueError("x"), ["on_started in_progress", "on_failed failed x"]),
        (Cancel("enough"), ["on_started in_progress", "on_cancelled cancelled"]),
    ],
)
async def test_each_hook_is_called_once_with_the_record(
    app: Trax, ending: Exception | None, told: list[str]
) -> None:
    heard: list[str] = []

    def hook(name: str) -> Any:
        async def listen(record: Metadata, *error: Exception) -> None:
            heard.append(" ".join([name, record.state, *map(str, error)]))

        return listen

    names = ("on_started", "on_completed", "on_failed", "on_cancelled")

    @app.train(**{name: hook(name) for name in names})  # pyright: ignore[reportArgumentType]
    async def work(_: int) -> None:
        if ending:
            raise ending

    await asyncio.gather(app.run(work, 1), return_exceptions=True)

    assert heard == told


async def test_a_hook_that_raises_changes_nothing(app: Trax, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_record: Metadata) -> None:
        raise LookupError("broken hook")

    @app.train(on_started=broken, on_completed=broken)
    async def work(number: int) -> int:
        return number

    assert await app.run(work, 1) == 1

    assert (await only_record(app)).state is State.COMPLETED
    assert "its hook on_completed failed" in caplog.text


async def test_a_value_that_is_too_large_is_marked_and_not_stored(url: str) -> None:
    app = Trax(url, max_parameter_bytes=100)

    @app.train
    async def echo(text: str) -> str:
        return text

    assert await app.run(echo, "é" * 60) == "é" * 60

    record = await only_record(app)
    assert record.input == record.output == {"_truncated": True, "_maxBytes": 100}
    app.close()


@pytest.mark.parametrize("is_queued", [True, False])
async def test_the_outputs_of_one_train_can_be_left_out_of_records(url: str, *, is_queued: bool) -> None:
    app = Trax(url)

    @app.train(save_outputs=False)
    async def read(text: str) -> str:
        return text

    @app.train
    async def echo(text: str) -> str:
        return text

    async with Harness(app) as h:
        for train in (read, echo):
            if is_queued:
                await app.queue(train, "secret")
            else:
                assert await app.run(train, "secret") == "secret"
        await h.run_until_idle()
        outputs = {run.train: run.output for run in await app.executions.list()}

    assert outputs == {"read": None, "echo": "secret"}


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"save_inputs": False}, (None, "secret")),
        ({"save_outputs": False}, ("secret", None)),
        ({"max_parameter_bytes": 5}, ({"_truncated": True, "_maxBytes": 5},) * 2),
    ],
)
async def test_a_queued_run_keeps_no_more_than_it_may_and_still_gets_it_all(
    url: str, settings: dict[str, Any], kept: tuple[Any, Any]
) -> None:
    app = Trax(url, **settings)
    seen: list[str] = []

    @app.train
    async def echo(text: str) -> str:
        seen.append(text)
        return text

    async with Harness(app) as h:
        await app.queue(echo, "secret")
        await h.run_until_idle()

        record = await only_record(app)
        assert seen == ["secret"]
        assert (record.input, record.output) == kept


async def test_inputs_and_outputs_can_be_kept_out_of_the_record(url: str) -> None:
    app = Trax(url, save_inputs=False, save_outputs=False)

    @app.train
    async def echo(text: str) -> str:
        return text

    await app.run(echo, "secret")

    record = await only_record(app)
    assert (record.input, record.output) == (None, None)
    app.close()


async def test_an_output_that_cannot_be_saved_does_not_fail_the_run(
    app: Trax, caplog: pytest.LogCaptureFixture
) -> None:
    @app.train
    async def lie(_: int) -> int:
        return "not a number"  # pyright: ignore[reportReturnType]

    @app.train
    async def lock(_: int) -> threading.Lock:  # a type that has no JSON
        return threading.Lock()

    assert await app.run(lie, 1) == "not a number"
    await app.run(lock, 1)

    locked, lied = await app.executions.list()
    assert (locked.state, lied.state) == (State.COMPLETED, State.COMPLETED)
    assert locked.output["_notSaved"].startswith("the output of train 'lock' is ")
    assert "which cannot be JSON" in locked.output["_notSaved"]
    assert lied.output["_notSaved"] == (
        "train 'lie': invalid output: the value itself: Input should be a valid integer (got 'not a number')"
    )
    assert "output not saved" in caplog.text


async def test_the_record_of_a_queued_run_explains_why_its_output_was_not_saved(app: Trax) -> None:
    class Odd: ...

    @app.train
    async def odd(_: int) -> Odd:
        return Odd()

    @app.train
    async def endless(_: int) -> float:
        return float("inf")

    @app.train
    async def plain(_: int) -> None:
        return None

    async with Harness(app) as harness:
        for train in (odd, endless, plain):
            await app.queue(train, 1)
        await harness.run_until_idle()
        saved = {record.train: record.output for record in await app.executions.list()}
        await app.settings.update(save_outputs=False)
        await app.queue(odd, 1)
        await harness.run_until_idle()
        (unsaved, *_) = await app.executions.list()

    assert "the output of train 'odd' is Odd, which cannot be JSON" in saved["odd"]["_notSaved"]
    assert "a number that is not finite cannot be written as JSON" in saved["endless"]["_notSaved"]
    assert saved["plain"] is None
    assert unsaved.output is None, "outputs are off: no note stands where nothing was wanted"


async def test_services_are_made_for_a_run_and_closed_after_it(app: Trax) -> None:
    events: list[str] = []

    class Session:
        def __enter__(self) -> Self:
            events.append("opened")
            return self

        def __exit__(self, *_: object) -> None:
            events.append("closed")

    app.provide(Session, Session)

    @app.train
    async def use(number: int, session: Session) -> int:
        events.append(type(session).__name__)
        return number

    await app.run(use, 1)

    assert events == ["opened", "Session", "closed"]


async def test_executions_are_listed_newest_first_and_page_by_page(app: Trax) -> None:
    @app.train
    async def odd(number: int) -> None:
        if number % 2 == 0:
            raise ValueError(number)

    await asyncio.gather(*(app.run(odd, number) for number in range(5)), return_exceptions=True)

    newest = await app.executions.list(limit=2)
    older = await app.executions.list(limit=10, before=newest[-1].id)
    ids = [record.id for record in newest + older]
    assert ids == sorted(ids, reverse=True)
    assert len(ids) == 5
    assert len(await app.executions.list(state="failed")) == 3
    assert await app.executions.list(train="other") == []
    assert (await app.executions.get(ids[0])).id == ids[0]


async def test_an_unknown_execution_is_an_error(app: Trax) -> None:
    with pytest.raises(NotFound, match="no execution 99"):
        await app.executions.get(99)


async def test_blocking_code_has_the_same_verbs(app: Trax) -> None:
    @app.train
    async def double(number: int) -> int:
        return 2 * number

    assert await asyncio.to_thread(app.sync.run, double, 21) == 42
    with pytest.raises(TraxError, match=r"await app\.run"):
        app.sync.run(double, 1)
