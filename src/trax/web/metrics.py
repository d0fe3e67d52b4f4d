"""Prometheus metrics for `/metrics`, read with bounded queries and cached for a few seconds.

Metrics of the installation are the same from every process. Those of this process, such as its loops, are
named `trax_process_…`.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from trax.inspect.status import status
from trax.records.stats import RunTotals
from trax.store.status import load_gauges
from trax.worker.app_context import BUCKET_BOUNDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from prometheus_client.metrics_core import Metric

    from trax.app.app import Trax
    from trax.records.stats import Gauges, RecentRun
    from trax.records.status import Status
    from trax.store import Connection, Store
    from trax.worker.app_context import SecondsHistogram

FRESH_SECONDS: Final = 5.0
MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
QUANTILES: Final = (0.5, 0.95, 0.99)


class PrometheusMetrics:
    """Reads and caches the metrics, and accumulates counters from per-minute totals."""

    def __init__(self, app: Trax) -> None:
        self._app = app
        self._lock = asyncio.Lock()
        self._text = b""
        self._read_at: float | None = None
        self._totals_until: datetime | None = None
        self._ended: defaultdict[str, RunTotals] = defaultdict(RunTotals)

    async def text(self) -> bytes:
        async with self._lock:  # concurrent requests share one read
            if self._read_at is None or time.monotonic() - self._read_at >= FRESH_SECONDS:
                self._text = await self._read()
                self._read_at = time.monotonic()
        return self._text

    async def _read(self) -> bytes:
        store = await self._app.context.store.open()
        readings = await store.ask(_read_gauges, store, self._totals_until)
        self._totals_until = readings.totals_until
        for train, sums in readings.ended:
            self._ended[train] += sums
        current = await status(self._app.context.store, self._app.context.live)
        registry = CollectorRegistry()
        registry.register(
            _ReadMetrics(
                [*_store_metrics(readings, current), *self._run_totals(), *_process_metrics(self._app)]
            )
        )
        return generate_latest(registry)

    def _run_totals(self) -> Iterator[Metric]:
        """Counters of ended runs, from completed minutes since the first request to this process."""
        runs = CounterMetricFamily("trax_runs", "Runs that have ended.", labels=["train", "state"])
        seconds = CounterMetricFamily(
            "trax_run_seconds", "Total duration of completed runs.", labels=["train"]
        )
        for train, sums in sorted(self._ended.items()):
            for state in ("completed", "failed", "cancelled"):
                runs.add_metric([train, state], getattr(sums, state))
            seconds.add_metric([train], sums.seconds)
        return iter((runs, seconds))


class _ReadMetrics(Collector):
    """A collector over metrics that were already read."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _read_gauges(connection: Connection, store: Store, totals_until: datetime | None) -> Gauges:
    return load_gauges(connection, now=store.now(connection), totals_until=totals_until)


def _store_metrics(readings: Gauges, current: Status) -> Iterator[Metric]:
    depth = GaugeMetricFamily(
        "trax_queue_ready", "Entries ready to run, counted up to 10,000.", labels=["group"]
    )
    age = GaugeMetricFamily("trax_queue_oldest_seconds", "Waiting time of the next entry.", labels=["group"])
    for queue in readings.queues:
        depth.add_metric([queue.group], queue.ready)
        waited = 0.0 if queue.oldest_at is None else (readings.now - queue.oldest_at).total_seconds()
        age.add_metric([queue.group], max(0.0, waited))
    yield from (depth, age)
    yield GaugeMetricFamily("trax_queue_delayed", "Entries scheduled for later.", current.delayed)
    yield GaugeMetricFamily(
        "trax_queue_parked", "Entries whose train or group no live worker accepts.", current.parked
    )
    yield GaugeMetricFamily("trax_runs_pending", "Runs waiting for a worker.", current.pending)
    yield GaugeMetricFamily("trax_runs_in_progress", "Runs in progress.", current.running)
    yield GaugeMetricFamily("trax_dead_letters", "Dead letters awaiting intervention.", current.dead_letters)
    yield GaugeMetricFamily(
        "trax_failed_last_hour", "Failed runs within the last hour.", current.failed_last_hour
    )
    yield GaugeMetricFamily("trax_workers", "Live workers.", len(current.workers))
    slots = sum(worker.concurrency for worker in current.workers)
    yield GaugeMetricFamily("trax_worker_slots", "Slots of all live workers.", slots)
    yield from _recent_run_metrics(readings.recent)


def _recent_run_metrics(recent: Sequence[RecentRun]) -> Iterator[Metric]:
    pickup = GaugeMetricFamily(
        "trax_recent_pickup_seconds",
        "Time from dispatch to start, last 1,000 runs.",
        labels=["quantile"],
    )
    waits = sorted(run.pickup_seconds for run in recent if run.pickup_seconds is not None)
    for share in QUANTILES if waits else ():
        pickup.add_metric([str(share)], quantile(waits, share))
    took = GaugeMetricFamily(
        "trax_recent_duration_seconds",
        "Duration of the last 1,000 runs.",
        labels=["train", "quantile"],
    )
    by_train: defaultdict[str, list[float]] = defaultdict(list)
    for run in recent:
        if run.duration_seconds is not None:
            by_train[run.train].append(run.duration_seconds)
    for train, durations in sorted(by_train.items()):
        for share in QUANTILES:
            took.add_metric([train, str(share)], quantile(sorted(durations), share))
    return iter((pickup, took))


def quantile(ordered: Sequence[float], share: float) -> float:
    """The quantile of a non-empty sorted sequence."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _process_metrics(app: Trax) -> Iterator[Metric]:
    turns = CounterMetricFamily("trax_process_loop_turns", "Turns of each loop.", labels=["loop"])
    failed = CounterMetricFamily("trax_process_loop_failures", "Failed turns of each loop.", labels=["loop"])
    for loop in app.loops:
        turns.add_metric([loop.name], loop.turns)
        failed.add_metric([loop.name], loop.failed_turns)
    counters = app.context.counters
    yield from (turns, failed)
    took = HistogramMetricFamily(
        "trax_process_run_seconds", "Duration of runs executed by this process.", labels=["train"]
    )
    for train, seconds in sorted(counters.runs.items()):
        took.add_metric([train], *_buckets(seconds))
    picked_up = HistogramMetricFamily(
        "trax_process_pickup_seconds", "Time from dispatch to start, of runs executed by this process."
    )
    picked_up.add_metric([], *_buckets(counters.pickup))
    yield from (took, picked_up)
    yield CounterMetricFamily(
        "trax_process_admitted", "Entries admitted by the dispatcher.", counters.admitted
    )
    yield CounterMetricFamily("trax_process_dead_letters", "Dead letters written.", counters.dead_letters)
    yield CounterMetricFamily(
        "trax_process_lost_workers", "Workers that missed their heartbeat.", counters.lost_workers
    )
    yield CounterMetricFamily(
        "trax_process_deferred_manifests",
        "Checks of manifests whose schedule this server cannot evaluate.",
        counters.deferred_manifests,
    )
    yield CounterMetricFamily(
        "trax_process_repaired_manifests",
        "Manifests without a next due time that the watchdog repaired.",
        counters.repaired_manifests,
    )
    yield GaugeMetricFamily(
        "trax_process_running", "Runs in progress in this process.", len(app.active_trains)
    )


def _buckets(seconds: SecondsHistogram) -> tuple[list[tuple[str, float]], float]:
    """Cumulative buckets, as Prometheus expects them."""
    bounds = (*map(str, BUCKET_BOUNDS), "+Inf")
    return list(zip(bounds, map(float, accumulate(seconds.counts)), strict=True)), seconds.total
