"""Jobs that wait far longer than settings, limits and workers explain. No I/O.

What waits is read when the verification starts. The sweep over the runs then shows whether a place was free
for it all the time, or whether later jobs of the same train and group went first.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from trax.engine.routing import AcceptedWork, WorkerFleet
from trax.engine.submitter import LOCAL
from trax.inspect.job_sweep import HELD_OPEN
from trax.inspect.limits_in_force import NOT_KNOWN, exceeds
from trax.records.verification import FindingKind, HistoryFinding
from trax.store.present import WaitingEntry, WaitingRun
from trax.store.types import parse_mapping, parse_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from trax.inspect.limits_in_force import LimitTimeline
    from trax.settings import Settings
    from trax.store.history import RunRow
    from trax.store.present import ServerRow

WAITED_FOR: Final = timedelta(minutes=10)
"""What has waited for a shorter time may be in flight. A server as old has seen it."""
IDLE_FOR: Final = timedelta(minutes=1)
"""A place that was free for so long would have been used: each server looks every few seconds."""


class WaitingJobs(NamedTuple):
    """What has waited for long when the verification started, by where it waits."""

    ready: Sequence[WaitingEntry] = ()
    delayed: Sequence[WaitingEntry] = ()
    parked: Sequence[WaitingEntry] = ()
    pending: Sequence[WaitingRun] = ()
    handed_over: Sequence[WaitingRun] = ()


class Servers(NamedTuple):
    """The servers that have been there for long: whether one dispatches, and what their workers accept."""

    dispatches: bool
    fleet: WorkerFleet

    @classmethod
    def of(cls, rows: Iterable[ServerRow], now: datetime) -> Servers:
        old = [row for row in rows if row.started_at <= now - WAITED_FOR]
        workers = tuple(
            AcceptedWork(
                frozenset((*parse_names(row.trains), *parse_names(row.aliases))),
                None if row.groups is None else frozenset(parse_names(row.groups)),
            )
            for row in old
            if row.kind == "worker" and row.concurrency
        )
        routes = {train: to for row in old for train, to in parse_mapping(row.routes).items()}
        return cls(any(row.dispatches for row in old), WorkerFleet(workers=workers, routes=routes))


class _Overtaken:
    """The last two moments at which later jobs of the same train and group went first."""

    def __init__(self, job: WaitingEntry | WaitingRun, since: datetime) -> None:
        self.job = job
        self.since = since
        self.last: datetime | None = None
        self.before: datetime | None = None

    def note(self, moment: datetime) -> None:
        if self.last is None or moment > self.last:
            self.last, self.before = moment, self.last


class WaitingWatch:
    """Watches the runs, in the order of their ids, for what they say about the jobs that wait."""

    def __init__(self, waiting: WaitingJobs, now: datetime, *, commits_in_order: bool) -> None:
        self._waiting = waiting
        self._now = now
        self._idle_since = now - IDLE_FOR
        margin = WAITED_FOR if commits_in_order else HELD_OPEN
        entries = [_Overtaken(entry, entry.waits_since + margin) for entry in waiting.ready]
        runs = [_Overtaken(run, run.waits_since + WAITED_FOR) for run in waiting.pending]
        self._by_key: dict[tuple[int | None, str], list[_Overtaken]] = {}
        for each in (*entries, *runs):
            self._by_key.setdefault((each.job.group_id, each.job.train), []).append(each)
        self._entries = {each.job.id: each for each in entries}
        self._runs = {each.job.id: each for each in runs}
        self._returned: dict[int, datetime] = {}
        self._margin = margin
        self.limited: Counter[int | None] = Counter()
        """How many runs under the limits were active in the last minute, by group; None is in total."""
        self.local = 0
        """How many runs in progress on local workers there were in the last minute."""

    def add(self, run: RunRow) -> None:
        if run.ended_at is None or run.ended_at > self._idle_since:
            self._count(run)
        if not self._by_key:
            return
        if run.entry_id in self._entries and run.ended_at is not None:
            self._returned[run.entry_id] = max(run.ended_at, self._returned.get(run.entry_id, run.ended_at))
        for each in self._by_key.get((run.group_id, run.train), ()):
            if run.id not in self._runs and _is_behind(run, each.job):
                moment = run.created_at if each.job.id in self._entries else run.started_at
                if moment is not None and moment > each.since:
                    each.note(moment)

    def _count(self, run: RunRow) -> None:
        if not run.exempt:
            self.limited[None] += 1
            if run.group_id is not None:
                self.limited[run.group_id] += 1
        if run.submitter == LOCAL and run.worker_id is not None:
            self.local += 1

    def start_of_wait(self, entry: WaitingEntry) -> datetime:
        """When it began to wait: it may have come back to the queue later."""
        return max(entry.waits_since, self._returned.get(entry.id, entry.waits_since))

    def was_overtaken(self, job: WaitingEntry | WaitingRun, *, is_entry: bool) -> bool:
        found = (self._entries if is_entry else self._runs)[job.id]
        returned_at = self._returned.get(job.id) if is_entry else None
        if found.before is None:
            return False
        return returned_at is None or found.before > returned_at + self._margin


def _is_behind(run: RunRow, job: WaitingEntry | WaitingRun) -> bool:
    """Whether a run comes after this job in the queue, or among the pending runs."""
    if run.entry_id is None or run.entry_created_at is None or run.submitter is None:
        return False
    own = (run.entry_priority or 0, job.priority)
    if isinstance(job, WaitingEntry):
        return own[0] <= own[1] and (run.entry_created_at, run.entry_id) > (job.created_at, job.id)
    return own[0] <= own[1] and run.id > job.id


class WaitingVerdict:
    """Decides which of the waiting jobs nothing explains."""

    def __init__(
        self,
        watch: WaitingWatch,
        servers: Servers,
        settings: Settings,
        *,
        total: LimitTimeline,
        groups: Mapping[int, LimitTimeline],
        now: datetime,
    ) -> None:
        self._watch = watch
        self._servers = servers
        self._settings = settings
        self._total = total
        self._groups = groups
        self._now = now
        self._before = now - WAITED_FOR
        self.undecided = 0

    def findings(self, waiting: WaitingJobs) -> Iterator[HistoryFinding]:
        can_dispatch = self._servers.dispatches and self._settings.job_dispatcher_enabled
        can_manage = self._servers.dispatches and self._settings.manifest_manager_enabled
        for entry in waiting.ready:
            since = self._watch.start_of_wait(entry)
            is_certain = self._is_ready_too_long(entry) if can_dispatch else None
            if since < self._before:
                yield from self._judge("entry", entry.id, "has been ready", since, is_certain=is_certain)
        for entry in waiting.delayed:
            text = "is delayed, though its time came"
            yield from self._judge(
                "entry", entry.id, text, entry.waits_since, is_certain=can_dispatch or None
            )
        yield from self._judge_parked(waiting.parked, can_dispatch=can_dispatch, can_manage=can_manage)
        for run in waiting.pending:
            is_certain = self._is_pending_too_long(run) if can_dispatch else None
            yield from self._judge("run", run.id, "has been pending", run.waits_since, is_certain=is_certain)
        for run in waiting.handed_over:
            if run.waits_since < self._before - self._settings.stale_pending_timeout:
                text = f"has waited for submitter {run.submitter!r}"
                yield from self._judge("run", run.id, text, run.waits_since, is_certain=can_manage or None)

    def _judge_parked(
        self, entries: Sequence[WaitingEntry], *, can_dispatch: bool, can_manage: bool
    ) -> Iterator[HistoryFinding]:
        """Parked entries that a worker accepts, or that should have been given up."""
        timeout = self._settings.unknown_train_timeout or self._settings.stale_pending_timeout
        for entry in entries:
            is_accepted = can_dispatch and self._servers.fleet.is_available(entry.parked or "")
            is_over = entry.waits_since < self._before - timeout
            if is_accepted or is_over:
                is_certain = is_accepted or can_manage or None
                yield from self._judge(
                    "entry", entry.id, "is parked", entry.waits_since, is_certain=is_certain
                )

    def _is_ready_too_long(self, entry: WaitingEntry) -> bool | None:
        """False if a limit or busy workers may explain it; None if a limit is not known."""
        if self._watch.was_overtaken(entry, is_entry=True):
            return True
        return self._has_idle_worker(entry.train, entry.group) and self._has_capacity(entry.group_id)

    def _is_pending_too_long(self, run: WaitingRun) -> bool:
        is_overtaken = self._watch.was_overtaken(run, is_entry=False)
        return is_overtaken or self._has_idle_worker(run.train, run.group)

    def _has_capacity(self, group_id: int | None) -> bool | None:
        """Whether no limit was reached in the last minute; None if one is not known or was just changed."""
        timelines: dict[int | None, LimitTimeline | None] = {None: self._total}
        if group_id is not None:
            timelines[group_id] = self._groups.get(group_id)
        limits = {
            key: NOT_KNOWN if timeline is None else timeline.limit_since(self._before, self._now)
            for key, timeline in timelines.items()
        }
        if any(exceeds(self._watch.limited[key], limit) for key, limit in limits.items()):
            return False
        return None if NOT_KNOWN in limits.values() else True

    def _has_idle_worker(self, train: str, group: str | None) -> bool:
        """Whether a worker accepts it and none of them ran anything in the last minute.

        Which places a running job uses is in no record: a train may need a process of its own.
        """
        if train in self._servers.fleet.routes:
            return True
        return not self._watch.local and self._servers.fleet.can_start(train, group)

    def _judge(
        self, noun: str, row_id: int, text: str, since: datetime, *, is_certain: bool | None
    ) -> Iterator[HistoryFinding]:
        """The finding, if it is one; None is not decided."""
        if is_certain is None:
            self.undecided += 1
        if not is_certain:
            return
        text = f"{noun} {row_id} {text} since {since:%Y-%m-%d %H:%M:%S}Z, and nothing explains it"
        yield HistoryFinding(FindingKind.WAITS_TOO_LONG, noun, (row_id,), text)
