"""What is counted and measured: one table, from which the instruments are made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from opentelemetry.metrics import Observation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opentelemetry.metrics import CallbackOptions, Meter

    from trax.store.run_times import RunTimes
    from trax.work.pool import Load


class Metric(NamedTuple):
    """One instrument, as the page of metrics shows it."""

    name: str
    unit: str
    attributes: tuple[str, ...]
    description: str


COUNTERS: Final = (
    Metric("trax.run.ended", "{run}", ("trax.train", "trax.state"), "Runs that have ended."),
    Metric("trax.run.retried", "{run}", ("trax.train",), "Runs that have ended and were not the first try."),
    Metric("trax.run.admitted", "{run}", (), "Entries that the gate has let through."),
    Metric("trax.entry.queued", "{entry}", ("trax.train",), "Entries that this process has queued."),
    Metric("trax.dead_letter.written", "{dead_letter}", (), "Jobs that gave up."),
    Metric("trax.worker.lost", "{worker}", (), "Workers that were found silent."),
)
HISTOGRAMS: Final = (
    Metric("trax.run.duration", "s", ("trax.train", "trax.state"), "From the start of a run to its end."),
    Metric(
        "trax.run.wait", "s", ("trax.train",), "From queued, or the moment it was put off to, to its start."
    ),
    Metric("trax.run.pickup", "s", ("trax.train",), "From the gate to its start."),
)
GAUGES: Final = (
    Metric("trax.worker.slots", "{slot}", ("trax.worker",), "How many runs this process executes at once."),
    Metric("trax.worker.running", "{run}", ("trax.worker",), "How many it executes now."),
    Metric("trax.worker.prefetched", "{run}", ("trax.worker",), "How many it holds that wait for a slot."),
)
METRICS: Final = (*COUNTERS, *HISTOGRAMS, *GAUGES)

SECONDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600)
"""Where the buckets of a histogram end, unless a view says otherwise: from a millisecond to an hour."""


class Metrics:
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
            meter.create_observable_gauge(one.name, [self._reading(position)], one.unit, one.description)

    def count(self, name: str, amount: int = 1, **attributes: str) -> None:
        if amount:
            self._counters[name].add(amount, _named(attributes))

    def measure(self, name: str, seconds: float | None, **attributes: str) -> None:
        if seconds is not None:
            self._histograms[name].record(seconds, _named(attributes))

    def run_ended(self, times: RunTimes) -> None:
        train, state = times.train, times.state
        self.count("trax.run.ended", train=train, state=state)
        self.count("trax.run.retried", int(times.attempt > 1), train=train)
        self.count("trax.dead_letter.written", int(times.gave_up))
        self.measure("trax.run.duration", times.duration_seconds, train=train, state=state)
        self.measure("trax.run.wait", times.wait_seconds, train=train)
        self.measure("trax.run.pickup", times.pickup_seconds, train=train)

    def _reading(self, position: int) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(_: CallbackOptions) -> Iterable[Observation]:
            for worker_id, load in self._loads():
                yield Observation(load[position], {"trax.worker": worker_id})

        return read


def _named(attributes: dict[str, str]) -> dict[str, Any]:
    return {f"trax.{name}": value for name, value in attributes.items()}
