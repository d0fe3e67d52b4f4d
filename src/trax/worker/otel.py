"""OpenTelemetry spans and metrics of runs and cycles. Errors of telemetry code are logged, not raised."""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, wraps
from time import time_ns
from typing import TYPE_CHECKING, Any, Final, NamedTuple, ParamSpec, TypeVar
from weakref import WeakSet

from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.metrics import Observation
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from trax.errors import StoreError
from trax.store.runs import run_lists
from trax.train import Cancelled, Done, Failed, Interrupted
from trax.worker.heartbeat import own_version

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping

    from opentelemetry.metrics import CallbackOptions, Meter
    from opentelemetry.trace import Span, Tracer

    from trax.engine.enqueue import EnqueueRequest
    from trax.engine.job_dispatcher import DispatchResult
    from trax.engine.manifest_manager import ManagerResult
    from trax.store import Connection, Store
    from trax.store.runs.run_lists import RunTimes
    from trax.train import Cancellation, Outcome, Run, Train
    from trax.train.run import Observer
    from trax.worker.app_context import Providers
    from trax.worker.pool import Load
    from trax.worker.worker import Worker

logger = logging.getLogger(__name__)
P = ParamSpec("P")

T = TypeVar("T")


def log_errors(function: Callable[P, T]) -> Callable[P, T | None]:
    """Decorate a function so that errors of span processors, exporters and readers are only logged."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return function(*args, **kwargs)
        except Exception:
            logger.exception("telemetry: a processor, exporter or reader failed; runs are not affected")
            return None

    return call


SCOPE = "trax"

DISPATCHER_SPAN = "trax.job_dispatcher"

MANAGER_SPAN = "trax.manifest_manager"


class Instruments:
    """The spans and metrics of a process."""

    def __init__(self, providers: Providers) -> None:
        version = own_version()
        self._tracer = providers.tracers.get_tracer(SCOPE, version)
        self.workers: WeakSet[Worker] = WeakSet()
        """Workers whose load is reported."""
        self._metrics = MeterInstruments(providers.meters.get_meter(SCOPE, version), self._loads)

    @log_errors
    def start_run(self, run: Run, *, worker_id: int | None = None) -> RunSpan:
        """Start the span of a run, in a worker or of `app.run`."""
        return RunSpan(self._tracer, run, worker_id=worker_id)

    async def finish_runs(self, store: Store, spans: Mapping[int, RunSpan | None]) -> None:
        """End the spans and record the metrics of runs whose results are written, from their records."""
        try:
            recorded = await store.ask(run_lists.load_run_times, spans)
        except StoreError as error:
            logger.warning("telemetry: durations of %s runs are not recorded: %s", len(spans), error)
            recorded = []
        self._record_runs(recorded)
        times = {run.metadata_id: run for run in recorded}
        for metadata_id, span in spans.items():
            if span is not None:
                span.end(times.get(metadata_id))

    @contextmanager
    def trace_enqueue(self, request: EnqueueRequest) -> Generator[EnqueueRequest]:
        """Trace the enqueue in the block; yields the request with the trace in its external ids."""
        span = self._start_enqueue_span(request)
        if span is None:
            yield request
            return
        with span_scope(span):
            yield replace(
                request, inputs={add_trace(id_, span): text for id_, text in request.inputs.items()}
            )
        self._count_queued(request)

    @log_errors
    def _start_enqueue_span(self, request: EnqueueRequest) -> Span:
        attributes = {
            "trax.train": request.train,
            "trax.group": request.group,
            "trax.entries": len(request.inputs),
        }
        name = f"queue {request.train}"
        return self._tracer.start_span(name, kind=SpanKind.PRODUCER, attributes=without_none(attributes))

    @log_errors
    def record_manager_cycle(
        self, began_ns: int, result: ManagerResult | None, connection: Connection
    ) -> None:
        """Record a cycle of the manifest manager, if it changed anything."""
        if result is None or not result.has_changes:
            return
        self._metrics.count("trax.dead_letter.written", len(result.dead_letters))
        self._metrics.count("trax.worker.lost", result.lost_workers)
        self._record_runs(run_lists.load_run_times(connection, result.reaped) if result.reaped else ())
        counts = {
            "trax.queued": result.queued,
            "trax.dead_letters": result.dead_letters,
            "trax.timed_out": result.timed_out,
            "trax.reaped": result.reaped,
        }
        self._record_cycle(MANAGER_SPAN, began_ns, {name: len(ids) for name, ids in counts.items()})

    @log_errors
    def record_dispatch_cycle(self, began_ns: int, result: DispatchResult) -> None:
        """Record a dispatch cycle, if it changed anything."""
        if result.has_changes:
            admitted = len(result.metadata_ids)
            self._metrics.count("trax.run.admitted", admitted)
            self._record_cycle(DISPATCHER_SPAN, began_ns, {"trax.admitted": admitted})

    def _record_cycle(self, name: str, began_ns: int, attributes: dict[str, Any]) -> None:
        self._tracer.start_span(name, context=Context(), attributes=attributes, start_time=began_ns).end()

    @log_errors
    def _record_runs(self, runs: Iterable[RunTimes]) -> None:
        for times in runs:
            self._metrics.record_run(times)

    @log_errors
    def _count_queued(self, request: EnqueueRequest) -> None:
        self._metrics.count("trax.entry.queued", len(request.inputs), train=request.train)

    def _loads(self) -> Iterable[tuple[int, Load]]:
        return [(worker.id, worker.load) for worker in list(self.workers)]


@lru_cache(maxsize=8)
def instruments_of(providers: Providers) -> Instruments:
    """The instruments of these providers, shared by all apps: a meter has each instrument once."""
    return Instruments(providers)


ID_WITH_TRACE: Final = re.compile(r"^[0-9a-f]{32}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$")


def add_trace(external_id: str, span: Span) -> str:
    """Append the trace context to the id, in the fields of a `traceparent`."""
    context = span.get_span_context()
    if not context.is_valid:
        return external_id
    return f"{external_id}-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def context_of(external_id: str) -> Context:
    """The parent context of a run with this id: the span that enqueued it, or a new trace."""
    found = ID_WITH_TRACE.match(external_id)
    if found is None:
        return Context()
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    parent = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return set_span_in_context(NonRecordingSpan(parent), Context())


class Metric(NamedTuple):
    """One metric, as listed in docs/reference/observability.md."""

    name: str
    unit: str
    attributes: tuple[str, ...]
    description: str


COUNTERS: Final = (
    Metric("trax.run.ended", "{run}", ("trax.train", "trax.state"), "Runs that have ended."),
    Metric("trax.run.retried", "{run}", ("trax.train",), "Ended runs that were a retry."),
    Metric("trax.run.admitted", "{run}", (), "Entries admitted by the dispatcher."),
    Metric("trax.entry.queued", "{entry}", ("trax.train",), "Entries queued by this process."),
    Metric("trax.dead_letter.written", "{dead_letter}", (), "Jobs that became dead letters."),
    Metric("trax.worker.lost", "{worker}", (), "Workers that were declared lost."),
)

HISTOGRAMS: Final = (
    Metric("trax.run.duration", "s", ("trax.train", "trax.state"), "Time from a run's start to its end."),
    Metric(
        "trax.run.wait", "s", ("trax.train",), "Time from queued, or from its scheduled time, to its start."
    ),
    Metric("trax.run.pickup", "s", ("trax.train",), "Time from admission to its start."),
)

GAUGES: Final = (
    Metric("trax.worker.slots", "{slot}", ("trax.worker",), "Number of slots."),
    Metric("trax.worker.running", "{run}", ("trax.worker",), "Active runs."),
    Metric("trax.worker.prefetched", "{run}", ("trax.worker",), "Claimed runs that wait for a slot."),
)

METRICS: Final = (*COUNTERS, *HISTOGRAMS, *GAUGES)

SECONDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600)
"""Where the buckets of a histogram end, unless a view says otherwise: from a millisecond to an hour."""


class MeterInstruments:
    """The instruments of one meter."""

    def __init__(self, meter: Meter, loads: Callable[[], Iterable[tuple[int, Load]]]) -> None:
        self._loads = loads
        self._counters = {
            one.name: meter.create_counter(one.name, one.unit, one.description) for one in COUNTERS
        }
        self._histograms = {
            one.name: meter.create_histogram(
                one.name, one.unit, one.description, explicit_bucket_boundaries_advisory=SECONDS
            )
            for one in HISTOGRAMS
        }
        for position, one in enumerate(GAUGES):
            meter.create_observable_gauge(
                one.name, [self._gauge_callback(position)], one.unit, one.description
            )

    def count(self, name: str, amount: int = 1, **attributes: str) -> None:
        if amount:
            self._counters[name].add(amount, _add_prefix(attributes))

    def measure(self, name: str, seconds: float | None, **attributes: str) -> None:
        if seconds is not None:
            self._histograms[name].record(seconds, _add_prefix(attributes))

    def record_run(self, times: RunTimes) -> None:
        train, state = times.train, times.state
        self.count("trax.run.ended", train=train, state=state)
        self.count("trax.run.retried", int(times.attempt > 1), train=train)
        self.count("trax.dead_letter.written", int(times.is_dead_lettered))
        self.measure("trax.run.duration", times.duration_seconds, train=train, state=state)
        self.measure("trax.run.wait", times.wait_seconds, train=train)
        self.measure("trax.run.pickup", times.pickup_seconds, train=train)

    def _gauge_callback(self, position: int) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(_: CallbackOptions) -> Iterable[Observation]:
            for worker_id, load in self._loads():
                yield Observation(load[position], {"trax.worker": worker_id})

        return read


def _add_prefix(attributes: dict[str, str]) -> dict[str, Any]:
    return {f"trax.{name}": value for name, value in attributes.items()}


class RunSpan:
    """The span of one run, from its start until its result is written.

    It is the current span in the code of the run, and so is the span of the current junction: spans of
    instrumented libraries become their children.
    """

    __slots__ = ("_context", "_ended_at", "_is_over", "_junction", "_span", "_token", "_tracer")

    def __init__(self, tracer: Tracer, run: Run, *, worker_id: int | None) -> None:
        """The parent of a queued run is the span that enqueued it; of `app.run`, the caller's span."""
        is_queued = worker_id is not None
        self._tracer = tracer
        self._span = tracer.start_span(
            run.train,
            context=context_of(run.external_id) if is_queued else None,
            kind=SpanKind.CONSUMER if is_queued else SpanKind.INTERNAL,
            attributes=without_none(
                {
                    "trax.train": run.train,
                    "trax.metadata_id": run.metadata_id,
                    "trax.external_id": run.external_id,
                    "trax.manifest": run.manifest,
                    "trax.attempt": run.attempt,
                    "trax.worker": worker_id,
                }
            ),
        )
        self._context = set_span_in_context(self._span, contexts.Context() if is_queued else None)
        self._token = contexts.attach(self._context)
        self._junction: Span | None = None
        self._ended_at: int | None = None
        self._is_over = False

    def observer(
        self,
        train: Train[Any, Any],
        next_observer: Observer | None,
        token: Cancellation,
        *,
        is_here: bool = True,
    ) -> Observer | None:
        """An observer that starts a span for each junction, unless the run is being stopped.

        A train of one junction needs no extra span. With `is_here` the observer is called in the context of
        the junction, so its span becomes current there.
        """
        if len(train.plan.steps) == 1:
            return next_observer

        def observe(junction: str) -> Awaitable[None] | None:
            first = None if next_observer is None else next_observer(junction)
            if first is not None:
                return after(first, junction)
            begin(junction)
            return None

        async def after(first: Awaitable[None], junction: str) -> None:
            await first
            begin(junction)

        def begin(junction: str) -> None:
            if not token.requested:
                self._begin(junction, is_here=is_here)

        return observe

    def leave(self) -> None:
        """Restore the previous context; call it in the context where the span was created."""
        contexts.detach(self._token)

    @log_errors
    def stop(self, outcome: Outcome[Any]) -> None:
        """Note the outcome and end time; the span itself ends when the result is written."""
        self._ended_at = at = time_ns()
        for span in (self._junction, self._span):
            if span is not None:
                _record_outcome(span, outcome)
        self._end_junction(at)

    @log_errors
    def end(self, times: RunTimes | None) -> None:
        """End the span after the result is written; `times` is None if it is not known."""
        if self._is_over:
            return
        self._is_over = True
        if times is not None:
            self._span.set_attributes(without_none({"trax.group": times.group, "trax.state": times.state}))
        self._span.end(self._ended_at)

    @log_errors
    def _begin(self, junction: str, *, is_here: bool) -> None:
        at = time_ns()
        self._end_junction(at)
        self._junction = self._tracer.start_span(
            junction, context=self._context, attributes={"trax.junction": junction}, start_time=at
        )
        if is_here:
            # Never detached: the context ends with the run, or `leave` restores the previous one.
            contexts.attach(set_span_in_context(self._junction, self._context))

    def _end_junction(self, at: int) -> None:
        span, self._junction = self._junction, None
        if span is not None:
            span.end(at)


@contextmanager
def span_scope(span: Span) -> Generator[None]:
    """Make this the current span in the block; end it afterwards and record an error of the block."""
    token = contexts.attach(set_span_in_context(span))
    try:
        yield
    except BaseException as error:
        _fail(span, error)
        raise
    finally:
        contexts.detach(token)
        _end(span)


def without_none(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that have a value."""
    return {name: value for name, value in attributes.items() if value is not None}


@log_errors
def _fail(span: Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))


@log_errors
def _end(span: Span) -> None:
    span.end()


def _record_outcome(span: Span, outcome: Outcome[Any]) -> None:
    match outcome:
        case Done():
            span.set_status(Status(StatusCode.OK))
        case Failed(error, failure):
            attributes = {"exception.message": failure.message, "exception.stacktrace": failure.stack_trace}
            span.record_exception(error, attributes)
            span.set_status(Status(StatusCode.ERROR, f"{failure.type}: {failure.message}"))
        case Cancelled(reason) | Interrupted(reason):
            span.add_event("cancelled", {"trax.reason": reason})
