"""Record runs, enqueues and cycles as OpenTelemetry spans and metrics."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from opentelemetry.context import Context
from opentelemetry.trace import SpanKind

from trax.errors import StoreError
from trax.host.identity import own_version
from trax.host.telemetry.carried import add_trace
from trax.host.telemetry.harmless import log_errors
from trax.host.telemetry.metrics import MeterInstruments
from trax.host.telemetry.spans import RunSpan, span_scope, without_none
from trax.store import run_times

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from opentelemetry.trace import Span

    from trax.admin.job_dispatcher import DispatchResult
    from trax.admin.manifest_manager import ManagerResult
    from trax.host.telemetry import Providers
    from trax.host.worker import Worker
    from trax.queue import EnqueueRequest
    from trax.store import Connection, Store
    from trax.store.run_times import RunTimes
    from trax.train import Run
    from trax.work.pool import Load

logger = logging.getLogger(__name__)

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
            recorded = await store.ask(run_times.load_run_times, spans)
        except StoreError as error:
            logger.warning("durations of %s runs are not recorded as metrics: %s", len(spans), error)
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
        self._record_runs(run_times.load_run_times(connection, result.reaped) if result.reaped else ())
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
