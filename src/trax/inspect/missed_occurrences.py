"""Occurrences of schedules that got no entry, without any reason. No I/O.

Only certain cases are findings: the schedule and its group have not been changed since, the last run had
completed well before, the occurrence is not excluded, and the manager queued other scheduled jobs in time
while this one was due. Any other gap is counted as not decided.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from trax.errors import DefinitionError
from trax.records.manifest import ToDeadLetter, ToEnqueue
from trax.records.schedule import Cron, Interval, Timing
from trax.records.states import MisfirePolicy, Origin, ScheduleType, State
from trax.records.verification import FindingKind, HistoryFinding
from trax.schedule.cron import next_occurrence
from trax.schedule.decide import Rules, decide
from trax.schedule.exclusions import is_excluded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trax.records.manifest import ManifestState
    from trax.store.history import EntryRow, TimedManifest

ON_TIME: Final = timedelta(minutes=1)
MINUTE: Final = timedelta(minutes=1)
OVERDUE: Final = timedelta(minutes=10)
"""A younger occurrence may still be queued."""
MAX_CHECKED: Final = 1_000
"""How many occurrences of one gap are checked."""
MAX_MINUTES: Final = 50 * 366 * 24 * 60


class MinuteSet:
    """A set of minutes, one bit each: a year needs 65 KB. Moments far from the first one are left out."""

    def __init__(self) -> None:
        self._bits = bytearray()
        self._first: datetime | None = None

    def add(self, moment: datetime) -> None:
        if self._first is None:
            self._first = _minute(moment) - timedelta(days=1)  # entries are not exactly in the order of time
        place = (moment - self._first) // MINUTE
        if not 0 <= place < MAX_MINUTES:
            return
        if place // 8 >= len(self._bits):
            self._bits.extend(bytes(place // 8 + 1 - len(self._bits)))
        self._bits[place // 8] |= 1 << place % 8

    def first_between(self, start: datetime, end: datetime) -> datetime | None:
        """The first whole minute between the two moments that is in the set."""
        if self._first is None:
            return None
        first = max(0, (start - self._first) // MINUTE + 1)
        last = min((end - self._first) // MINUTE, 8 * len(self._bits))
        places = (place for place in range(first, last) if self._bits[place // 8] >> place % 8 & 1)
        place = next(places, None)
        return None if place is None else self._first + place * MINUTE


class OccurrenceWatch:
    """Watches the entries of cron and interval manifests, in the order of their ids."""

    def __init__(self, manifests: dict[int, TimedManifest], on_time: MinuteSet | None = None) -> None:
        """`on_time`: the minutes in which the manager has worked, if another watch has read all entries."""
        self._manifests = manifests
        self._unseen = {each.id for each in manifests.values() if not each.was_queued}
        self._last: dict[int, EntryRow] = {}
        self._steps: dict[int, timedelta] = {}
        self.on_time = MinuteSet() if on_time is None else on_time
        self.undecided = 0

    def add(self, entry: EntryRow) -> Iterator[HistoryFinding]:
        """Take the next entry; the occurrences that were missed before it."""
        is_scheduled = entry.origin == Origin.SCHEDULE and entry.scheduled_for is not None
        if (
            is_scheduled
            and timedelta() <= entry.created_at - (entry.scheduled_for or entry.created_at) < ON_TIME
        ):
            self.on_time.add(entry.created_at)
        manifest = self._manifests.get(entry.manifest_id or 0)
        if manifest is None:
            return
        self._unseen.discard(manifest.id)
        last = self._last.pop(manifest.id, None)
        if is_scheduled:
            self._last[manifest.id] = entry
        if last is not None:
            upper = entry.scheduled_for if is_scheduled else entry.created_at
            yield from self._check_gap(manifest, last, upper or entry.created_at, entry.created_at)

    def finish(self, now: datetime, since: datetime | None = None) -> Iterator[HistoryFinding]:
        """The occurrences missed after the last entry of each manifest, and by those that never had one."""
        for manifest_id, last in self._last.items():
            yield from self._check_gap(self._manifests[manifest_id], last, now - OVERDUE, now)
        for manifest in (self._manifests[manifest_id] for manifest_id in sorted(self._unseen)):
            if (since or manifest.changed_at) <= manifest.changed_at < now - OVERDUE:
                yield from self._check_gap(manifest, None, now - OVERDUE, now)

    def _check_gap(
        self, manifest: TimedManifest, last: EntryRow | None, upper: datetime, noticed_at: datetime
    ) -> Iterator[HistoryFinding]:
        if isinstance(manifest.timing.schedule, Interval):
            yield from self._check_interval(manifest, manifest.timing.schedule, last, upper, noticed_at)
            return
        before = manifest.changed_at if last is None else last.scheduled_for or last.created_at
        step = self._steps.get(manifest.id)
        if step is not None and upper - before < 2 * step:
            return
        try:
            moment = self._next(manifest, before)
            for _ in range(MAX_CHECKED):
                if moment >= upper:
                    return
                following = self._next(manifest, moment)
                if not _is_excluded(manifest.timing, moment):
                    yield from self._check_occurrence(manifest, last, moment, min(following, noticed_at))
                moment = following
        except DefinitionError:
            self.undecided += 1

    def _check_interval(
        self,
        manifest: TimedManifest,
        interval: Interval,
        last: EntryRow | None,
        upper: datetime,
        noticed_at: datetime,
    ) -> Iterator[HistoryFinding]:
        """An interval counts from the end of the last run: there is one occurrence to miss, not several."""
        before = manifest.changed_at if last is None else last.run_ended_at
        if before is None:
            return
        moment = before + timedelta(seconds=interval.seconds)
        if moment + ON_TIME < upper and not _is_excluded(manifest.timing, moment):
            yield from self._check_occurrence(manifest, last, moment, noticed_at)

    def _check_occurrence(
        self, manifest: TimedManifest, last: EntryRow | None, moment: datetime, until: datetime
    ) -> Iterator[HistoryFinding]:
        worked_at = self.on_time.first_between(moment, until)
        margin = ON_TIME if isinstance(manifest.timing.schedule, Cron) else timedelta()
        is_free = last is None or _had_completed(last, manifest, moment - margin)
        if worked_at is None or not (is_free and _must_run(manifest.timing, moment, worked_at)):
            self.undecided += 1
            return
        text = (
            f"manifest {manifest.external_id!r} ({manifest.id}) was due at {moment:%Y-%m-%d %H:%M:%S}Z and "
            f"got no entry, while others were queued in time; "
            f"{'it never had one' if last is None else f'its last entry is {last.id}'}"
        )
        yield HistoryFinding(FindingKind.OCCURRENCE_MISSED, "manifest", (manifest.id,), text)

    def _next(self, manifest: TimedManifest, after: datetime) -> datetime:
        moment = next_occurrence(_cron_of(manifest.timing), after)
        step = self._steps.get(manifest.id)
        self._steps[manifest.id] = moment - after if step is None else min(step, moment - after)
        return moment


def check_state(state: ManifestState, rules: Rules, now: datetime) -> HistoryFinding | None:
    """The finding of a failed, dependent or `once` manifest that is due, but that no manager checks.

    The occurrences of the others are watched.
    """
    causes = {ScheduleType.DEPENDENT: "its parent succeeded", ScheduleType.ONCE: "its time has come"}
    has_failed = bool(state.failure_count or state.gave_up_reason)
    cause = causes.get(state.timing.schedule_type)
    if not has_failed and cause is None:
        return None
    decisions = [decide(state, rules, moment) for moment in (now - OVERDUE, now)]
    if not all(isinstance(each, ToEnqueue | ToDeadLetter) for each in decisions):
        return None
    name, ids = f"manifest {state.external_id!r} ({state.id})", (state.id,)
    if has_failed:
        text = f"{name} failed, but it was not retried and has no dead letter"
        return HistoryFinding(FindingKind.FAILURE_LOST, "manifest", ids, text)
    text = f"{name} got no entry although {cause}, while others were queued in time"
    return HistoryFinding(FindingKind.OCCURRENCE_MISSED, "manifest", ids, text)


def _had_completed(last: EntryRow, manifest: TimedManifest, moment: datetime) -> bool:
    """Whether the last run had completed by then, under the schedule that the manifest still has."""
    has_run = last.run_state == State.COMPLETED and last.run_ended_at is not None
    return has_run and (last.run_ended_at or moment) < moment and manifest.changed_at < last.created_at


def _must_run(timing: Timing, moment: datetime, now: datetime) -> bool:
    """Whether an occurrence must still run if the manager checks it now."""
    is_late = timing.misfire.policy is MisfirePolicy.DO_NOTHING and now - moment > timing.misfire.threshold
    return not is_late and not _is_excluded(timing, now)


def _is_excluded(timing: Timing, moment: datetime) -> bool:
    return is_excluded(timing.exclusions, timing.time_zone, moment)


def _cron_of(timing: Timing) -> Cron:
    if timing.broken or not isinstance(timing.schedule, Cron):
        raise DefinitionError(timing.broken or "the manifest has no cron schedule")
    return timing.schedule


def _minute(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)
