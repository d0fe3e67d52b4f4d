"""Everything that is told to OpenTelemetry, said in Trax's own words."""

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
from trax.host.telemetry.carried import carrying
from trax.host.telemetry.harmless import harmless
from trax.host.telemetry.metrics import Metrics
from trax.host.telemetry.spans import RunSpan, current, given
from trax.store import run_times

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from opentelemetry.trace import Span

    from trax.admin.job_dispatcher import Dispatched
    from trax.admin.manifest_manager import Managed
    from trax.host.telemetry import Providers
    from trax.host.worker import Worker
    from trax.queue import Wish
    from trax.store import Connection, Store
    from trax.store.run_times import RunTimes
    from trax.train import Run
    from trax.work.pool import Load

logger = logging.getLogger(__name__)

SCOPE = "trax"
ADMITTING = "trax.job_dispatcher"
MANAGING = "trax.manifest_manager"


class Instruments:
    """The spans and metrics of a process."""

    def __init__(self, providers: Providers) -> None:
        known = own_version()
        self._tracer = providers.tracers.get_tracer(SCOPE, known)
        self.workers: WeakSet[Worker] = WeakSet()
        """Those of which it is told how busy they are."""
        self._metrics = Metrics(providers.meters.get_meter(SCOPE, known), self._loads)

    @harmless
    def begun(self, run: Run, *, worker_id: int | None = None) -> RunSpan:
        """A run begins, in the slot of a worker, or here and now."""
        return RunSpan(self._tracer, run, worker_id=worker_id)

    async def ended(self, store: Store, ended: Mapping[int, RunSpan | None]) -> None:
        """These runs have ended, and that is written down: what the records say is what is told."""
        try:
            recorded = await store.ask(run_times.of_runs, ended)
        except StoreError as error:
            logger.warning("how long %s runs took cannot be told: %s", len(ended), error)
            recorded = []
        self._count(recorded)
        times = {one.metadata_id: one for one in recorded}
        for metadata_id, span in ended.items():
            if span is not None:
                span.end(times.get(metadata_id))

    @contextmanager
    def queueing(self, wish: Wish) -> Generator[Wish]:
        """Around the writing of entries; gives the wish for entries that carry this trace."""
        span = self._producing(wish)
        if span is None:
            yield wish
            return
        with current(span):
            yield replace(wish, inputs={carrying(one, span): text for one, text in wish.inputs.items()})
        self._count_queued(wish)

    @harmless
    def _producing(self, wish: Wish) -> Span:
        asked = {"trax.train": wish.train, "trax.group": wish.group, "trax.entries": len(wish.inputs)}
        return self._tracer.start_span(f"queue {wish.train}", kind=SpanKind.PRODUCER, attributes=given(asked))

    @harmless
    def managed(self, began_ns: int, managed: Managed | None, connection: Connection) -> None:
        """A cycle of the manager. Of one that changed nothing, nothing is told."""
        if managed is None or not managed.changed:
            return
        self._metrics.count("trax.dead_letter.written", len(managed.dead_letters))
        self._metrics.count("trax.worker.lost", managed.lost_workers)
        self._count(run_times.of_runs(connection, managed.reaped) if managed.reaped else ())
        changed = {
            "trax.queued": managed.queued,
            "trax.dead_letters": managed.dead_letters,
            "trax.timed_out": managed.timed_out,
            "trax.reaped": managed.reaped,
        }
        self._cycle(MANAGING, began_ns, {name: len(ids) for name, ids in changed.items()})

    @harmless
    def dispatched(self, began_ns: int, dispatched: Dispatched) -> None:
        """A cycle of the gate."""
        if dispatched.changed:
            admitted = len(dispatched.metadata_ids)
            self._metrics.count("trax.run.admitted", admitted)
            self._cycle(ADMITTING, began_ns, {"trax.admitted": admitted})

    def _cycle(self, name: str, began_ns: int, attributes: dict[str, Any]) -> None:
        self._tracer.start_span(name, context=Context(), attributes=attributes, start_time=began_ns).end()

    @harmless
    def _count(self, ended: Iterable[RunTimes]) -> None:
        for times in ended:
            self._metrics.run_ended(times)

    @harmless
    def _count_queued(self, wish: Wish) -> None:
        self._metrics.count("trax.entry.queued", len(wish.inputs), train=wish.train)

    def _loads(self) -> Iterable[tuple[int, Load]]:
        return [(worker.id, worker.load) for worker in list(self.workers)]


@lru_cache(maxsize=8)
def instruments_of(providers: Providers) -> Instruments:
    """One for all apps that tell the same providers: an instrument exists once in a meter."""
    return Instruments(providers)
