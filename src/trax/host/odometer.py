"""Counters and histograms of this process since its start, for metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from copy import deepcopy
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

BUCKET_BOUNDS: Final = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    1800.0,
)
"""Upper bounds of the buckets, in seconds; one more bucket has the rest."""

MOST_REMEMBERED: Final = 10_000
"""How many manifest and reason pairs are remembered, so that each is logged once."""


@dataclass(slots=True)
class SecondsHistogram:
    """A histogram of durations: counts per bucket, and their total."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKET_BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKET_BOUNDS, seconds)] += 1
        self.total += seconds


@dataclass(slots=True)
class ProcessCounters:
    """Counters that only increase. Each has exactly one loop that writes it."""

    admitted: int = 0
    dead_letters: int = 0
    lost_workers: int = 0
    deferred_manifests: int = 0
    repaired_manifests: int = 0
    _runs: defaultdict[str, SecondsHistogram] = field(default_factory=lambda: defaultdict(SecondsHistogram))
    _pickup: SecondsHistogram = field(default_factory=SecondsHistogram)
    _lock: Lock = field(default_factory=Lock)
    """Runs may end in any thread: `app.sync.run` is blocking."""
    _deferred: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    @property
    def runs(self) -> dict[str, SecondsHistogram]:
        """Durations of the runs executed in this process, by train."""
        with self._lock:
            return deepcopy(dict(self._runs))

    @property
    def pickup(self) -> SecondsHistogram:
        """How long dispatched runs waited for a worker of this process."""
        with self._lock:
            return deepcopy(self._pickup)

    def count_deferred(self, manifest: str, reason: str) -> bool:
        """Count a manifest that could not be evaluated here; True the first time for this reason."""
        self.deferred_manifests += 1
        is_news = (manifest, reason) not in self._deferred
        if len(self._deferred) < MOST_REMEMBERED:
            self._deferred.add((manifest, reason))
        return is_news

    def count_run(self, train: str, seconds: float, *, waited_seconds: float | None = None) -> None:
        """Count a run that is over; `waited` is only given for dispatched runs."""
        with self._lock:
            self._runs[train].add(seconds)
            if waited_seconds is not None:
                self._pickup.add(max(0.0, waited_seconds))
