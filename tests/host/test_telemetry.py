"""Spans and metrics of an app for OpenTelemetry."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.trace import SpanKind, StatusCode
from tests.support import cpu_trains
from tests.support.listener import Listener, id_of, parent_of

from trax import Cancel, Retry, Trax, current, every, junction
from trax.testing import Harness
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from opentelemetry.sdk.trace import ReadableSpan


class Row(str):
    __slots__ = ()


@pytest.fixture
async def h(url: str) -> AsyncGenerator[Harness]:
    async with Harness(Trax(url)) as harness:
        yield harness


@pytest.fixture
def heard(h: Harness) -> Listener:
    return Listener(h.app)


async def greet(name: str) -> str:
    return f"Hello, {name}"


async def test_a_run_has_a_span_below_the_one_that_queued_it(h: Harness, heard: Listener) -> None:
    train = h.app.train(greet)
    h.app.group("people")

    with heard.tracers.get_tracer("caller").start_as_current_span("request"):
        await h.app.queue(train, "Ada", group="people")
    await h.run_until_idle()

    request, queue, run = heard.one("request"), heard.one("queue greet"), heard.one("greet")
    assert (parent_of(queue), parent_of(run)) == (id_of(request), id_of(queue))
    assert {span.context.trace_id for span in (request, queue, run) if span.context} == {_trace(request)}
    assert (queue.kind, run.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert run.status.status_code is StatusCode.OK


async def test_a_span_of_a_run_names_the_run(h: Harness, heard: Listener) -> None:
    train = h.app.train(greet)
    h.app.schedule(train, "greet-ada", "Ada", every(minutes=5), group="people")
    await h.seed()

    await h.run_until_idle()

    (record,) = await h.app.executions.list()
    said = dict(heard.one("greet").attributes or {})
    assert isinstance(said.pop("trax.worker"), int)
    assert said == {
        "trax.train": "greet",
        "trax.metadata_id": record.id,
        "trax.external_id": record.external_id,
        "trax.manifest": "greet-ada",
        "trax.attempt": 1,
        "trax.group": "people",
        "trax.state": "completed",
    }


async def test_every_run_of_a_batch_is_below_the_one_span_that_queued_them(
    h: Harness, heard: Listener
) -> None:
    train = h.app.train(greet)

    await h.app.queue_many(train, ["Ada", "Bob", "Cid"])
    await h.run_until_idle()

    queue = heard.one("queue greet")
    assert dict(queue.attributes or {}) == {"trax.train": "greet", "trax.entries": 3}
    assert [parent_of(run) for run in heard.named("greet")] == [id_of(queue)] * 3


async def test_a_failed_span_has_the_exception_and_its_retry_is_in_the_same_trace(
    h: Harness, heard: Listener
) -> None:
    @h.app.train(retry=Retry(max_retries=2, delay=timedelta(0)))
    async def break_down(name: str) -> None:
        raise ValueError(f"no {name}")

    await h.app.queue(break_down, "brakes")
    await h.run_until_idle()

    first, second = heard.named("break_down")
    assert _trace(first) == _trace(second)
    assert (first.status.status_code, first.status.description) == (
        StatusCode.ERROR,
        "ValueError: no brakes",
    )
    assert [event.name for event in first.events] == ["exception"]
    assert (first.attributes or {})["trax.attempt"] == 1
    assert (second.attributes or {})["trax.attempt"] == 2


@pytest.mark.parametrize("queued", [False, True])
async def test_spans_of_a_library_are_below_the_span_of_their_junction(
    h: Harness, heard: Listener, queued: bool
) -> None:
    inner = heard.tracers.get_tracer("library")

    @junction
    async def fetch(name: str) -> Row:
        with inner.start_as_current_span("call"):
            return Row(name)

    @junction
    def write(row: Row) -> int:  # in a thread
        with inner.start_as_current_span("insert"):
            return len(row)

    train = h.app.train("copy", fetch >> write)
    if queued:
        await h.app.queue(train, "Ada")
        await h.run_until_idle()
    else:
        await h.app.run(train, "Ada")

    run, parts = heard.one("copy"), [heard.one("fetch"), heard.one("write")]
    assert [parent_of(span) for span in parts] == [id_of(run)] * 2
    assert parent_of(heard.one("call")) == id_of(parts[0])
    assert parent_of(heard.one("insert")) == id_of(parts[1])
    assert (parts[1].start_time, parts[1].end_time) == (parts[0].end_time, run.end_time)


async def test_only_the_span_of_the_failed_junction_has_an_error(h: Harness, heard: Listener) -> None:
    @junction
    def fetch(name: str) -> Row:
        return Row(name)

    @junction
    def write(_: Row) -> int:
        raise OSError("the disk is full")

    await h.app.queue(h.app.train("copy", fetch >> write, max_retries=1), "Ada")
    await h.run_until_idle()

    said = {name: heard.one(name).status.status_code for name in ("fetch", "write", "copy")}
    assert said == {"fetch": StatusCode.UNSET, "write": StatusCode.ERROR, "copy": StatusCode.ERROR}


async def test_a_junction_that_did_not_begin_has_no_span(h: Harness, heard: Listener) -> None:
    @junction
    async def stop(name: str) -> Row:
        run = current()
        assert run
        run.cancellation.cancel("enough")
        return Row(name)

    @junction
    async def go_on(row: Row) -> int:
        return len(row)

    await h.app.queue(h.app.train("halting", stop >> go_on), "Ada")
    await h.run_until_idle()

    assert len(heard.named("stop")) == 1
    assert heard.named("go_on") == []
    (event,) = heard.one("halting").events
    assert dict(event.attributes or {}) == {"trax.reason": "enough"}


async def test_a_direct_run_has_a_span_below_that_of_its_caller(h: Harness, heard: Listener) -> None:
    @h.app.train
    async def outer(name: str) -> str:
        return await h.app.run(inner, name)

    inner = h.app.train(greet)

    with heard.tracers.get_tracer("caller").start_as_current_span("request") as request:
        await h.app.run(outer, "Ada")
        assert trace.get_current_span() is request

    assert parent_of(heard.one("greet")) == id_of(heard.one("outer"))
    assert heard.one("greet").kind is SpanKind.INTERNAL
    assert {_trace(span) for span in heard.spans} == {_trace(heard.one("request"))}


async def test_blocking_code_queues_into_its_trace_too(h: Harness, heard: Listener) -> None:
    train = h.app.train(greet)

    await asyncio.to_thread(h.app.sync.queue, train, "Ada")
    await h.run_until_idle()

    assert parent_of(heard.one("greet")) == id_of(heard.one("queue greet"))


async def test_an_entry_that_could_not_be_written_has_a_failed_span(h: Harness, heard: Listener) -> None:
    train = h.app.train(greet)

    @h.app.on_queue
    def refuse(_: object) -> None:
        raise PermissionError("not today")

    with pytest.raises(PermissionError):
        await h.app.queue(train, "Ada")

    assert heard.one("queue greet").status.description == "PermissionError: not today"
    assert heard.measured("trax.entry.queued") == {}


async def test_a_cycle_that_changes_nothing_has_no_span(h: Harness, heard: Listener) -> None:
    h.app.schedule(h.app.train(greet), "greet-ada", "Ada", every(minutes=5))
    await h.seed()
    await h.run_until_idle()

    (managed,), (dispatched,) = heard.named("trax.manifest_manager"), heard.named("trax.job_dispatcher")
    assert (managed.attributes or {})["trax.queued"] == 1
    assert (dispatched.attributes or {})["trax.admitted"] == 1
    heard.forget()
    await h.run_until_idle()
    assert heard.spans == ()


async def test_the_times_of_a_run_are_measured_by_the_clock_of_the_database(
    h: Harness, heard: Listener
) -> None:
    @h.app.train
    async def bake(_: str) -> None:
        await h.advance(seconds=30)

    await h.app.queue(bake, "bread", delay=timedelta(minutes=5))
    await h.advance(minutes=6)
    await h.cycle("job_dispatcher")
    await h.advance(seconds=2)
    await h.work()

    assert heard.measured("trax.entry.queued") == {("bake",): 1}
    assert heard.measured("trax.run.admitted") == {(): 1}
    assert heard.measured("trax.run.ended") == {("bake", "completed"): 1}
    assert heard.measured("trax.run.duration") == {("bake", "completed"): (1, 30.0)}
    assert heard.measured("trax.run.pickup") == {("bake",): (1, 2.0)}
    assert heard.measured("trax.run.wait") == {("bake",): (1, 62.0)}


async def test_retries_and_what_gave_up_are_counted(h: Harness, heard: Listener) -> None:
    @h.app.train(retry=Retry(max_retries=3, delay=timedelta(0)))
    async def break_down(name: str) -> None:
        raise ValueError(name)

    @h.app.train
    async def step_aside(_: str) -> None:
        raise Cancel("no need")

    h.app.schedule(break_down, "brakes", "brakes", every(days=1), max_retries=1)
    await h.seed()
    await h.app.queue(break_down, "lights")
    await h.app.queue(step_aside, "x")
    await h.run_until_idle()

    assert heard.measured("trax.run.ended") == {("break_down", "failed"): 4, ("step_aside", "cancelled"): 1}
    assert heard.measured("trax.run.retried") == {("break_down",): 2}
    assert len(await h.app.dead_letters.list()) == 2
    assert heard.measured("trax.dead_letter.written") == {(): 2}


async def test_a_lost_worker_is_counted_and_so_is_what_it_ran(h: Harness, heard: Listener) -> None:
    await h.app.queue(h.app.train(max_retries=1)(greet), "Ada")
    await h.cycle("job_dispatcher")
    store = await h.app.context.store.open()
    worker = await Worker.start(h.app.context, store)
    await store.call(worker._claim)  # pyright: ignore[reportPrivateUsage] - and is never heard of again

    await h.advance(minutes=1)
    await h.cycle("manifest_manager")

    assert heard.measured("trax.worker.lost") == {(): 1}
    assert heard.measured("trax.run.ended") == {("greet", "failed"): 1}
    assert heard.measured("trax.dead_letter.written") == {(): 1}
    await worker.unregister()


async def test_a_run_that_was_given_to_others_ends_without_a_state(h: Harness, heard: Listener) -> None:
    running, go_on = asyncio.Event(), asyncio.Event()

    @h.app.train
    async def hold(_: str) -> None:
        running.set()
        await go_on.wait()

    await h.app.queue(hold, "x")
    await h.cycle("job_dispatcher")
    worker = await Worker.start(h.app.context, await h.app.context.store.open())
    await worker.claim()
    await running.wait()

    await h.advance(minutes=1)
    await h.cycle("manifest_manager")
    go_on.set()
    await worker.drain(30)

    assert "trax.state" not in (heard.one("hold").attributes or {})
    assert heard.measured("trax.run.ended") == {("hold", "failed"): 1}
    await worker.unregister()


async def test_a_served_app_shows_how_busy_it_is(url: str) -> None:
    app = Trax(url, local_worker_count=2)
    heard, running, go_on = Listener(app), asyncio.Event(), asyncio.Event()

    @app.train
    async def hold(_: str) -> None:
        running.set()
        await go_on.wait()

    async with app:
        entry = await app.queue(hold, "x")
        await running.wait()
        (slots,), (busy,) = heard.measured("trax.worker.slots").values(), _values(heard, "running")
        assert (slots, busy, _values(heard, "prefetched")) == (2, 1, [0])

        go_on.set()
        await entry.wait(timeout=30)

    assert _values(heard, "slots") == []
    assert heard.measured("trax.run.ended") == {("hold", "completed"): 1}
    assert parent_of(heard.one("hold")) == id_of(heard.one("queue hold"))


async def test_a_run_in_a_process_of_its_own_has_its_spans_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_trains.app.context.telemetry, "now", None)  # and as before again after the test
    heard = Listener(cpu_trains.app)
    async with Harness(cpu_trains.app) as h:
        await cpu_trains.app.queue(cpu_trains.in_two_steps, 21)
        async with asyncio.timeout(120):
            await h.run_until_idle()

    run, parts = heard.one("in_two_steps"), [heard.one("halve"), heard.one("show")]
    assert [parent_of(span) for span in parts] == [id_of(run)] * 2
    assert run.status.status_code is StatusCode.OK


@pytest.mark.parametrize("when", ["on_start", "on_end"])
async def test_a_listener_that_breaks_affects_no_run(
    h: Harness,
    heard: Listener,
    when: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("out of order")

    processor = SpanProcessor()
    monkeypatch.setattr(processor, when, broken)
    heard.tracers.add_span_processor(processor)
    train = h.app.train(greet)

    entry = await h.app.queue(train, "Ada")
    await h.run_until_idle()

    assert (await entry.wait()).output == "Hello, Ada"
    assert await h.app.run(train, "Bob") == "Hello, Bob"
    assert "reader failed; runs are not affected" in caplog.text


PROGRAM = """
import asyncio, sys
{configure}
from trax import Trax
from trax.testing import Harness

app = Trax("memory://")

@app.train
async def greet(name: str) -> str:
    return name

async def main() -> None:
    async with Harness(app) as h:
        await app.queue(greet, "Ada")
        await h.run_until_idle()

asyncio.run(main())
{report}
"""

CONFIGURED = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter = InMemorySpanExporter()
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
"""


def _ran(configure: str, report: str, **environment: str) -> str:
    program = PROGRAM.format(configure=configure, report=report)
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_without_a_listener_nothing_is_imported() -> None:
    said = _ran("", "print(any(name.startswith('opentelemetry') for name in sys.modules))")

    assert said == "False"


def test_the_bare_api_is_no_listener() -> None:
    said = _ran("from opentelemetry import metrics, trace", "print(app.context.telemetry.now)")

    assert said == "None"


def test_the_provider_of_the_process_is_found() -> None:
    said = _ran(CONFIGURED, "print([span.name for span in exporter.get_finished_spans()])")

    assert said == "['queue greet', 'trax.job_dispatcher', 'greet']"


def test_a_provider_named_in_the_environment_is_found() -> None:
    report = "print(type(app.context.telemetry.now).__name__)"

    said = _ran("", report, OTEL_PYTHON_TRACER_PROVIDER="sdk_tracer_provider")

    assert said == "Instruments"


def _values(heard: Listener, name: str) -> list[int]:
    return list(heard.measured(f"trax.worker.{name}").values())


def _trace(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.trace_id
