"""Sweep over the runs in the order of their admission: how many were active together, against the limits.

No I/O. It keeps only the runs that are active at the moment of the sweep, so memory depends on the largest
overlap and not on the length of the history.

A run counts from its admission (`created_at`) until its end. At the same time, ends come before admissions: a
recorded end is never after the admission that used its capacity, because the gate reads the clock after it
has counted. If the order of two events is uncertain, the order without a violation is assumed.
"""

from __future__ import annotations

from collections import Counter, deque
from datetime import timedelta
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from trax.inspect.limits_in_force import BEGINNING, NOT_KNOWN, SETTLING, LimitTimeline, exceeds
from trax.records.verification import DensestWindow, Overlap

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from trax.inspect.limits_in_force import Limit

UNKNOWN_LIMIT: Final = LimitTimeline(())


class AdmittedRun(NamedTuple):
    """A run under the limits. `is_direct`: a run of `app.run`, which counts but passes no gate."""

    id: int
    group_id: int | None
    admitted_at: datetime
    ended_at: datetime | None
    is_direct: bool = False


class LimitViolation(NamedTuple):
    """A run admitted although `active` runs had reached the limit; `group_id` None: the global limit."""

    run: AdmittedRun
    group_id: int | None
    active: int
    limit: Limit


class ActiveRuns:
    """The runs that are active at the moment of the sweep."""

    def __init__(self) -> None:
        self._ends: list[datetime] = []
        self._open = 0

    def add(self, run: AdmittedRun, now: datetime) -> None:
        if run.ended_at is None:
            self._open += 1
        elif run.ended_at > now:
            heappush(self._ends, run.ended_at)

    def release(self, now: datetime) -> None:
        """Remove the runs that have ended by now."""
        while self._ends and self._ends[0] <= now:
            heappop(self._ends)

    def __len__(self) -> int:
        return len(self._ends) + self._open


class WindowCounter:
    """Counts admissions per second or minute of the clock, and keeps the largest count."""

    def __init__(self, seconds: int) -> None:
        self._span = timedelta(seconds=seconds)
        self._begins = self._ends = BEGINNING
        self._count = 0
        self.densest = DensestWindow()

    def add(self, moment: datetime) -> None:
        if not self._begins <= moment < self._ends:
            self._begins = moment - (moment - BEGINNING) % self._span
            self._ends = self._begins + self._span
            self._count = 0
        self._count += 1
        if self._count > self.densest.admitted:
            self.densest = DensestWindow(self._count, self._begins)


class OverlapSweep:
    """The overlap of one group, or of all runs (`group_id` is None)."""

    def __init__(self, limits: LimitTimeline, group_id: int | None = None) -> None:
        self._limits = limits
        self._group_id = group_id
        self._active = ActiveRuns()
        self._recent: deque[AdmittedRun] = deque()
        """Runs of `app.run` that the gate may not have seen yet: they are counted before they commit."""
        self._windows = WindowCounter(1), WindowCounter(60)
        self._most, self._most_at, self._most_limit = 0, None, NOT_KNOWN
        self.is_last_unknown = False
        """Whether the limit at the last admission is not known."""
        self._counts: Counter[str] = Counter()

    def count_before(self, run: AdmittedRun) -> None:
        """Count a run that was admitted before the period of the sweep."""
        if run.is_direct:
            self._recent.append(run)
        else:
            self._active.add(run, run.admitted_at)

    def add(self, run: AdmittedRun) -> LimitViolation | None:
        """Add the next run; returns the violation, if its admission is one."""
        now = run.admitted_at
        self._release(now)
        certain = len(self._active)
        limit = self._limits.at(now)
        self._note_most(certain + len(self._recent) + 1, now, limit)
        if run.is_direct:
            self._recent.append(run)
            return None
        self._active.add(run, now)
        self._counts["admitted"] += 1
        for window in self._windows:
            window.add(now)
        self.is_last_unknown = limit is NOT_KNOWN
        if limit is NOT_KNOWN:
            self._counts["unknown"] += 1
        elif exceeds(certain, limit):
            self._counts["exceeded"] += 1
            return LimitViolation(run, self._group_id, certain, limit)
        elif exceeds(certain + len(self._recent), limit):
            self._counts["undecided"] += 1
        return None

    @property
    def uncertain_admissions(self) -> int:
        """How many runs were admitted at the limit, if recent runs of `app.run` count."""
        return self._counts["undecided"]

    def overlap(self, group: str | None) -> Overlap:
        limit = self._most_limit
        return Overlap(
            group=group,
            admitted=self._counts["admitted"],
            most=self._most,
            at=self._most_at,
            limit=limit if isinstance(limit, int) else None,
            is_limit_known=limit is not NOT_KNOWN,
            exceeded=self._counts["exceeded"],
            unknown=self._counts["unknown"],
            densest_second=self._windows[0].densest,
            densest_minute=self._windows[1].densest,
        )

    def _release(self, now: datetime) -> None:
        self._active.release(now)
        if not self._recent:
            return
        waiting = [run for run in self._recent if run.ended_at is None or run.ended_at > now]
        self._recent = deque(run for run in waiting if run.admitted_at + SETTLING > now)
        for run in waiting:
            if run.admitted_at + SETTLING <= now:
                self._active.add(run, now)

    def _note_most(self, active: int, now: datetime, limit: Limit) -> None:
        if active > self._most:
            self._most, self._most_at, self._most_limit = active, now, limit


class LimitSweep:
    """The overlaps of every group and in total."""

    def __init__(self, total: LimitTimeline, groups: Mapping[int, LimitTimeline]) -> None:
        self._timelines = groups
        self.total = OverlapSweep(total)
        self.groups: dict[int, OverlapSweep] = {}
        self.unknown = 0
        """How many runs were admitted while their group's limit, or the global one, is not known."""

    def count_before(self, run: AdmittedRun) -> None:
        self.total.count_before(run)
        if run.group_id is not None:
            self._of_group(run.group_id).count_before(run)

    def add(self, run: AdmittedRun) -> list[LimitViolation]:
        """Add the next run in the order of admission; returns the limits that its admission violated."""
        sweeps = [self.total] if run.group_id is None else [self.total, self._of_group(run.group_id)]
        found = [sweep.add(run) for sweep in sweeps]
        if not run.is_direct and any(sweep.is_last_unknown for sweep in sweeps):
            self.unknown += 1
        return [violation for violation in found if violation is not None]

    def _of_group(self, group_id: int) -> OverlapSweep:
        sweep = self.groups.get(group_id)
        if sweep is None:
            limits = self._timelines.get(group_id, UNKNOWN_LIMIT)
            sweep = self.groups[group_id] = OverlapSweep(limits, group_id)
        return sweep


class AttemptSweep:
    """Attempts of one job that were active together. Give it the runs by id."""

    def __init__(self) -> None:
        self._active: dict[str, tuple[datetime | None, int]] = {}
        self._ends: list[tuple[datetime, str]] = []

    def add(self, run_id: int, job: str, *, admitted_at: datetime, ended_at: datetime | None) -> int | None:
        """Add the next run; the earlier attempt of its job that had not ended, if there is one."""
        self._forget(admitted_at)
        earlier = self._active.get(job)
        if earlier is not None and earlier[0] is None:
            return earlier[1]
        if ended_at is None or ended_at > (admitted_at if earlier is None else earlier[0] or admitted_at):
            self._active[job] = (ended_at, run_id)
            if ended_at is not None:
                heappush(self._ends, (ended_at, job))
        return None if earlier is None else earlier[1]

    def _forget(self, now: datetime) -> None:
        while self._ends and self._ends[0][0] <= now:
            ended_at, job = heappop(self._ends)
            if self._active.get(job, (None, 0))[0] == ended_at:
                del self._active[job]


class KeySweep:
    """The overlap of runs with the same unique key. Give it the entries by id, each with its last run."""

    def __init__(self) -> None:
        self._ends: list[tuple[datetime, str, str]] = []
        self._active: dict[tuple[str, str], list[tuple[int, datetime, datetime | None]]] = {}
        self.runs = 0
        self.most = 0
        self.most_key: tuple[str, str] | None = None

    def add(
        self,
        run_id: int,
        key: tuple[str, str],
        *,
        created_at: datetime,
        admitted_at: datetime,
        ended_at: datetime | None,
    ) -> list[int]:
        """Add the run of an entry that was created then; the earlier runs of its key that overlap with it.

        A run that had ended before this entry was created cannot overlap with a later one either.
        """
        self._forget(created_at)
        self.runs += 1
        others = self._active.setdefault(key, [])
        overlapping = [
            other
            for other, other_at, other_end in others
            if (other_end is None or admitted_at < other_end) and (ended_at is None or other_at < ended_at)
        ]
        others.append((run_id, admitted_at, ended_at))
        if ended_at is not None:
            heappush(self._ends, (ended_at, *key))
        if len(overlapping) + 1 > self.most:
            self.most, self.most_key = len(overlapping) + 1, key
        return overlapping

    def _forget(self, now: datetime) -> None:
        while self._ends and self._ends[0][0] <= now:
            _, *names = heappop(self._ends)
            key = (names[0], names[1])
            left = [each for each in self._active.get(key, ()) if each[2] is None or each[2] > now]
            if left:
                self._active[key] = left
            else:
                self._active.pop(key, None)
