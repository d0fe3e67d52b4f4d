"""`/metrics`: numbers for Prometheus, read from the database by bounded questions, at most every few seconds.

What the whole installation does is the same from whichever process it is asked. What a process does itself,
its loops above all, stands beside it under `trax_process_…`, where it runs a role.
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

from trax.host.odometer import BOUNDS
from trax.host.status import status
from trax.records.tally import Sums
from trax.store import gauges

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from prometheus_client.metrics_core import Metric

    from trax.host.app import Trax
    from trax.host.odometer import Seconds
    from trax.records.gauges import Gauges, RecentRun
    from trax.records.status import Status
    from trax.store import Connection, Store

FRESH_SECONDS: Final = 5.0
MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
QUANTILES: Final = (0.5, 0.95, 0.99)


class Metrics:
    """Reads what is measured, keeps it for a moment, and counts on where only sums are known."""

    def __init__(self, app: Trax) -> None:
        self._app = app
        self._lock = asyncio.Lock()
        self._text = b""
        self._read_at: float | None = None
        self._tallied_to: datetime | None = None
        self._ended: defaultdict[str, Sums] = defaultdict(Sums)

    async def text(self) -> bytes:
        async with self._lock:  # those who ask at once get the same answer
            if self._read_at is None or time.monotonic() - self._read_at >= FRESH_SECONDS:
                self._text = await self._read()
                self._read_at = time.monotonic()
        return self._text

    async def _read(self) -> bytes:
        store = await self._app.parts.store.opened()
        found = await store.ask(_gauges, store, self._tallied_to)
        self._tallied_to = found.tallied_to
        for train, sums in found.ended:
            self._ended[train] += sums
        standing = await status(self._app.parts)
        registry = CollectorRegistry()
        registry.register(_Given([*_measured(found, standing), *self._counted(), *_done_here(self._app)]))
        return generate_latest(registry)

    def _counted(self) -> Iterator[Metric]:
        """Sums of minutes that are over, since this process was first asked."""
        runs = CounterMetricFamily("trax_runs", "Runs that have ended.", labels=["train", "state"])
        seconds = CounterMetricFamily(
            "trax_run_seconds", "What completed runs took in all.", labels=["train"]
        )
        for train, sums in sorted(self._ended.items()):
            for state in ("completed", "failed", "cancelled"):
                runs.add_metric([train, state], getattr(sums, state))
            seconds.add_metric([train], sums.seconds)
        return iter((runs, seconds))


class _Given(Collector):
    """Metrics that were read beforehand."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _gauges(connection: Connection, store: Store, tallied_to: datetime | None) -> Gauges:
    return gauges.read(connection, now=store.now(connection), tallied_to=tallied_to)


def _measured(found: Gauges, standing: Status) -> Iterator[Metric]:
    depth = GaugeMetricFamily("trax_queue_ready", "Entries that could run now, to 10,000.", labels=["group"])
    age = GaugeMetricFamily(
        "trax_queue_oldest_seconds", "How long the next in line has waited.", labels=["group"]
    )
    for queue in found.queues:
        depth.add_metric([queue.group], queue.ready)
        waited = 0.0 if queue.oldest_at is None else (found.now - queue.oldest_at).total_seconds()
        age.add_metric([queue.group], max(0.0, waited))
    yield from (depth, age)
    yield GaugeMetricFamily("trax_queue_delayed", "Entries that wait for a moment.", standing.delayed)
    yield GaugeMetricFamily(
        "trax_queue_parked", "Entries whose train or group no live worker takes.", standing.parked
    )
    yield GaugeMetricFamily("trax_runs_pending", "Runs that wait for a worker.", standing.pending)
    yield GaugeMetricFamily("trax_runs_in_progress", "Runs under way.", standing.running)
    yield GaugeMetricFamily("trax_dead_letters", "What waits for a person.", standing.dead_letters)
    yield GaugeMetricFamily("trax_failed_last_hour", "Failures within an hour.", standing.failed_last_hour)
    yield GaugeMetricFamily("trax_workers", "Workers that live.", len(standing.workers))
    slots = sum(worker.concurrency for worker in standing.workers)
    yield GaugeMetricFamily("trax_worker_slots", "What they may run at once.", slots)
    yield from _quick(found.recent)


def _quick(recent: Sequence[RecentRun]) -> Iterator[Metric]:
    pickup = GaugeMetricFamily(
        "trax_recent_pickup_seconds",
        "From the gate to the start, of the last 1,000 runs.",
        labels=["quantile"],
    )
    waits = sorted(run.pickup_seconds for run in recent if run.pickup_seconds is not None)
    for share in QUANTILES if waits else ():
        pickup.add_metric([str(share)], quantile(waits, share))
    took = GaugeMetricFamily(
        "trax_recent_duration_seconds",
        "From start to end, of the last 1,000 runs.",
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
    """The value below which this share of them lies; there is at least one."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _done_here(app: Trax) -> Iterator[Metric]:
    turns = CounterMetricFamily("trax_process_loop_turns", "Turns of a loop.", labels=["loop"])
    failed = CounterMetricFamily("trax_process_loop_failures", "Turns that failed.", labels=["loop"])
    for loop in app.loops:
        turns.add_metric([loop.name], loop.turns)
        failed.add_metric([loop.name], loop.failed_turns)
    done = app.parts.odometer
    yield from (turns, failed)
    took = HistogramMetricFamily(
        "trax_process_run_seconds", "How long runs took that were executed here.", labels=["train"]
    )
    for train, seconds in sorted(done.runs.items()):
        took.add_metric([train], *_buckets(seconds))
    picked_up = HistogramMetricFamily(
        "trax_process_pickup_seconds", "From the gate to the start, of runs that were executed here."
    )
    picked_up.add_metric([], *_buckets(done.pickup))
    yield from (took, picked_up)
    yield CounterMetricFamily("trax_process_admitted", "Entries let through the gate.", done.admitted)
    yield CounterMetricFamily("trax_process_dead_letters", "Dead letters written.", done.dead_letters)
    yield CounterMetricFamily("trax_process_lost_workers", "Workers found silent.", done.lost_workers)
    yield CounterMetricFamily(
        "trax_process_deferred_manifests",
        "Looks at manifests whose schedule this server cannot evaluate.",
        done.deferred_manifests,
    )
    yield CounterMetricFamily(
        "trax_process_repaired_manifests",
        "Manifests without a planned look that the watchdog found.",
        done.repaired_manifests,
    )
    yield GaugeMetricFamily("trax_process_running", "Runs under way in this process.", len(app.under_way))


def _buckets(seconds: Seconds) -> tuple[list[tuple[str, float]], float]:
    """As Prometheus wants them: each bucket has those of the smaller ones, too."""
    bounds = (*map(str, BOUNDS), "+Inf")
    return list(zip(bounds, map(float, accumulate(seconds.counts)), strict=True)), seconds.total
