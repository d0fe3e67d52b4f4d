"""The figures of a forecast: lateness of manifests, use of limits, and how long chains take. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Final

from trax.records.states import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trax.inspect.simulate import Forecast
    from trax.store.runs.run_lists import TimedRun

ZERO: Final = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFigures:
    """The runs of one manifest. Lateness is the time from due to start; None without a run."""

    manifest: str
    group: str
    runs: int
    first_start: datetime | None
    last_end: datetime | None
    p50_lateness: timedelta | None
    p95_lateness: timedelta | None
    longest_wait: timedelta | None
    failures: int
    timeouts: int
    dead_letters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFigures:
    """How much of a limit is used: the most runs at once, and the share of the time with no capacity left.

    `group` is None for all runs together, under `max_active_jobs`.
    """

    group: str | None
    limit: int | None
    peak: int
    share_at_limit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainFigures:
    """A manifest with all its dependents: the duration from due to the last end, and the time of that end.

    The time of day of the median end is that of the occurrence with the median duration.
    """

    root: str
    occurrences: int
    p50: timedelta
    p95: timedelta
    longest: timedelta
    p50_end: datetime
    latest_end: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DayFigures:
    """One day (UTC): its runs, its longest chain, and the chain that ends last."""

    day: date
    runs: int
    failures: int
    busy: timedelta
    """How long all runs took together."""
    longest_chain: str | None = None
    makespan: timedelta | None = None
    chains_end: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All figures of a forecast."""

    manifests: tuple[ManifestFigures, ...]
    groups: tuple[GroupFigures, ...]
    chains: tuple[ChainFigures, ...]
    days: tuple[DayFigures, ...]


@dataclass(frozen=True, slots=True)
class ChainOccurrence:
    """One execution of a chain, from the due time of its root to the last end."""

    root: str
    due_at: datetime
    end_at: datetime

    @property
    def duration(self) -> timedelta:
        return self.end_at - self.due_at


def build_figures(forecast: Forecast) -> Figures:
    by_manifest: defaultdict[str, list[TimedRun]] = defaultdict(list)
    for run in forecast.runs:
        by_manifest[run.manifest].append(run)
    occurrences = find_occurrences(forecast, by_manifest)
    return Figures(
        manifests=tuple(_manifest(forecast, name, by_manifest[name]) for name in forecast.manifests),
        groups=tuple(_groups(forecast)),
        chains=tuple(_chains(occurrences)),
        days=tuple(_days(forecast.runs, occurrences)),
    )


def percentile(ordered: Sequence[timedelta], share: float) -> timedelta | None:
    """The smallest value that at least this share of the sorted values do not exceed."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else None


def _manifest(forecast: Forecast, name: str, runs: Sequence[TimedRun]) -> ManifestFigures:
    started = [run for run in runs if run.started_at is not None]
    waits = sorted(max(ZERO, run.started_at - run.due_at) for run in started if run.started_at)
    return ManifestFigures(
        manifest=name,
        group=forecast.group_of[name],
        runs=len(started),
        first_start=min((run.started_at for run in started if run.started_at), default=None),
        last_end=max((run.ended_at for run in runs if run.ended_at), default=None),
        p50_lateness=percentile(waits, 0.5),
        p95_lateness=percentile(waits, 0.95),
        longest_wait=percentile(waits, 1.0),
        failures=sum(run.state is State.FAILED for run in runs),
        timeouts=sum(run.has_timed_out for run in runs),
        dead_letters=forecast.dead_letters.get(name, 0),
    )


def _groups(forecast: Forecast) -> Iterable[GroupFigures]:
    by_group: defaultdict[str, list[TimedRun]] = defaultdict(list)
    limited = [run for run in forecast.runs if not run.exempt]
    for run in limited:
        by_group[forecast.group_of[run.manifest]].append(run)
    yield _use(None, forecast.max_active_jobs, limited, forecast)
    for name in dict.fromkeys(forecast.group_of[manifest] for manifest in forecast.manifests):
        yield _use(name, forecast.limits.get(name), by_group[name], forecast)


def _use(group: str | None, limit: int | None, runs: Iterable[TimedRun], forecast: Forecast) -> GroupFigures:
    """Iterate over starts and ends in order; at the same time, ends come first."""
    changes = [(run.started_at, 1) for run in runs if run.started_at]
    changes += [(run.ended_at, -1) for run in runs if run.started_at and run.ended_at]
    active, peak, full, before = 0, 0, ZERO, forecast.start
    for moment, change in sorted([*changes, (forecast.end, 0)]):
        if limit is not None and active >= limit:
            full += moment - before
        active, before = active + change, moment
        peak = max(peak, active)
    length = forecast.end - forecast.start
    return GroupFigures(group=group, limit=limit, peak=peak, share_at_limit=full / length if length else 0.0)


def find_occurrences(
    forecast: Forecast, by_manifest: Mapping[str, Sequence[TimedRun]]
) -> list[ChainOccurrence]:
    """The passages of all chains. A dependent's run belongs to the last occurrence of its root before it."""
    members: defaultdict[str, list[str]] = defaultdict(list)
    for name in forecast.manifests:
        if name in forecast.parents:
            members[_root(name, forecast.parents)].append(name)
    found: list[ChainOccurrence] = []
    for root, dependents in members.items():
        dues = [run.due_at for run in by_manifest.get(root, ()) if run.attempt == 1]
        ends: dict[int, datetime] = {}
        for run in (run for name in (root, *dependents) for run in by_manifest.get(name, ())):
            place = bisect_right(dues, run.due_at) - 1
            if run.ended_at is not None and place >= 0:
                ends[place] = max(run.ended_at, ends.get(place, run.ended_at))
        found += [ChainOccurrence(root, dues[place], end) for place, end in sorted(ends.items())]
    return found


def _root(name: str, parents: Mapping[str, str]) -> str:
    while name in parents:
        name = parents[name]
    return name


def _chains(occurrences: Iterable[ChainOccurrence]) -> Iterable[ChainFigures]:
    by_root: defaultdict[str, list[ChainOccurrence]] = defaultdict(list)
    for each in occurrences:
        by_root[each.root].append(each)
    for root, own in by_root.items():
        own.sort(key=lambda each: (each.duration, each.due_at))
        durations = [each.duration for each in own]
        yield ChainFigures(
            root=root,
            occurrences=len(own),
            p50=percentile(durations, 0.5) or ZERO,
            p95=percentile(durations, 0.95) or ZERO,
            longest=durations[-1],
            p50_end=own[ceil(0.5 * len(own)) - 1].end_at,
            latest_end=own[-1].end_at,
        )


def _days(runs: Iterable[TimedRun], occurrences: Iterable[ChainOccurrence]) -> Iterable[DayFigures]:
    by_day: defaultdict[date, list[TimedRun]] = defaultdict(list)
    for run in runs:
        if run.started_at is not None:
            by_day[run.started_at.date()].append(run)
    chains: defaultdict[date, list[ChainOccurrence]] = defaultdict(list)
    for each in occurrences:
        chains[each.due_at.date()].append(each)
    for day, own in sorted(by_day.items()):
        longest = max(chains[day], key=lambda each: each.duration, default=None)
        yield DayFigures(
            day=day,
            runs=len(own),
            failures=sum(run.state is State.FAILED for run in own),
            busy=sum((run.ended_at - run.started_at for run in own if run.ended_at and run.started_at), ZERO),
            longest_chain=longest and longest.root,
            makespan=longest and longest.duration,
            chains_end=max((each.end_at for each in chains[day]), default=None),
        )
