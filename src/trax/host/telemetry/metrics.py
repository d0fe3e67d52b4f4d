"""OpenTelemetry metrics: the table of all metrics, and their instruments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from opentelemetry.metrics import Observation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opentelemetry.metrics import CallbackOptions, Meter

    from trax.store.run_times import RunTimes
    from trax.work.pool import Load


class Metric(NamedTuple):
    """One metric, as documented in docs/observability.md."""

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
