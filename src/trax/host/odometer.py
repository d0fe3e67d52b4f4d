"""What the duties of this process have done since it began, for those who measure."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from copy import deepcopy
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Up to how many seconds each bucket reaches; one more has what took longer."""

REMEMBERED: Final = 10_000
"""How many manifests that could not be evaluated are known by name; of others each look is news."""


@dataclass(slots=True)
class Seconds:
    """How many times lie in each bucket, and what they add up to."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


@dataclass(slots=True)
class Odometer:
    """Only ever counts up, a cycle at a time. Each number has one duty that writes it."""

    admitted: int = 0
    dead_letters: int = 0
    lost_workers: int = 0
    deferred_manifests: int = 0
    repaired_manifests: int = 0
    _runs: defaultdict[str, Seconds] = field(default_factory=lambda: defaultdict(Seconds))
    _pickup: Seconds = field(default_factory=Seconds)
    _lock: Lock = field(default_factory=Lock)
    """Any thread may run a train: blocking code does, too."""
    _deferred: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    @property
    def runs(self) -> dict[str, Seconds]:
        """How long the runs of each train took that were executed here."""
        with self._lock:
            return deepcopy(dict(self._runs))

    @property
    def pickup(self) -> Seconds:
        """How long those of them waited for a worker that came through the gate."""
        with self._lock:
            return deepcopy(self._pickup)

    def defer(self, manifest: str, reason: str) -> bool:
        """Count a manifest that could not be evaluated here; True when that is news, for this reason."""
        self.deferred_manifests += 1
        is_news = (manifest, reason) not in self._deferred
        if len(self._deferred) < REMEMBERED:
            self._deferred.add((manifest, reason))
        return is_news

    def ran(self, train: str, seconds: float, *, waited: float | None = None) -> None:
        """A run is over; `waited` is for those that came through the gate."""
        with self._lock:
            self._runs[train].add(seconds)
            if waited is not None:
                self._pickup.add(max(0.0, waited))
