"""`trax verify`: read the whole history of a database, and report what must not be in it.

It reads in chunks along the ids, each in a short transaction, and keeps only what is active at the moment of
the sweep. Rows written after the start are not read.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from trax.engine.live_settings import GLOBAL_LIMIT, RETENTION
from trax.errors import count_noun
from trax.inspect import present_checks, record_checks
from trax.inspect.history_reader import CHUNK, Findings, HistoryReader
from trax.inspect.limits_in_force import (
    ExemptTrains,
    build_declared_changes,
    global_timeline,
    group_timelines,
    last_enabled_changes,
    shortest_retention,
)
from trax.inspect.missed_occurrences import MinuteSet, OccurrenceWatch
from trax.inspect.present_checks import PresentChecks
from trax.inspect.run_pass import KnownLimits, RunPass
from trax.inspect.sweep import KeySweep
from trax.inspect.waiting_jobs import WaitingJobs, WaitingWatch
from trax.records.verification import FindingKind, HistoryFinding, KeyOverlap, Verification
from trax.settings import Settings
from trax.store import history, present, recorded_changes
from trax.store.types import SQLITE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trax.inspect.history_reader import Progress
    from trax.store import Connection, Store
    from trax.store.history import EntryRow, TimedManifest
    from trax.store.recorded_changes import LimitChange

MAX_TIMED_MANIFESTS: Final = 100_000


def verify(
    store: Store,
    *,
    since: datetime | timedelta | None = None,
    until: datetime | timedelta | None = None,
    on_progress: Progress | None = None,
    chunk: int = CHUNK,
    declared: Sequence[tuple[datetime, Mapping[str, Any]]] = (),
) -> Verification:
    """Verify the records that were created from `since` until before `until`; None is all time.

    A duration is a moment before now. `declared` is what the code of a process has declared and when, if it
    dispatches without a row of its own.
    """
    end = store.read(lambda connection: history.load_end(connection, store.now(connection)))
    reader = HistoryReader(store, end, _moment(since, end.now), _moment(until, end.now), chunk)
    reader.on_progress = on_progress
    return _Verifier(reader, declared, store.dialect_name).verify()


def _moment(value: datetime | timedelta | None, now: datetime) -> datetime | None:
    return now - value if isinstance(value, timedelta) else value


class _Verifier:
    """Reads one table after the other and feeds the checks."""

    def __init__(
        self, reader: HistoryReader, declared: Sequence[tuple[datetime, Mapping[str, Any]]], dialect: str
    ) -> None:
        self._reader = reader
        self._read = reader.read
        self._declared = build_declared_changes(declared)
        self._commits_in_order = dialect == SQLITE
        self._found = Findings()
        self._counted: Counter[str] = Counter()
        self._removed_groups: set[int] = set()
        self._on_time = MinuteSet()
        self._retention: timedelta | None = None
        """For how long resolved dead letters were kept at least; None if it is not known."""

    def verify(self) -> Verification:
        now, is_until_now = self._reader.end.now, self._reader.has(self._reader.end.now)
        limits = self._read(_load_limits, self._declared)
        self._retention = limits.retention
        waiting = self._read(present_checks.load_waiting, now) if is_until_now else WaitingJobs()
        watch = WaitingWatch(waiting, now, commits_in_order=self._commits_in_order)
        runs = RunPass(self._reader, self._found, limits, watch, commits_in_order=self._commits_in_order)
        runs.read()
        self._removed_groups |= runs.removed_groups
        keys = self._read_entries(limits.enabled_since)
        self._read_letters()
        self._read_lines()
        if is_until_now:
            checks = PresentChecks(self._reader, self._found, self._on_time)
            checks.check_unattended()
            checks.check_lost_runs()
            checks.check_double_schedules()
            checks.check_waiting(waiting, watch, limits.total, limits.groups)
        self._check_removed_groups(limits.names)
        return self._result(runs, keys)

    def _result(self, runs: RunPass, keys: KeySweep) -> Verification:
        sweep, reader, found = runs.limits, self._reader, self._found
        overlaps = [each.overlap(runs.name(group_id)) for group_id, each in sweep.groups.items()]
        train, key = keys.most_key or (None, None)
        return Verification(
            at=reader.end.now,
            since=reader.since,
            until=reader.until,
            runs=runs.runs,
            entries=self._counted["entries"],
            dead_letters=self._counted["letters"],
            log_lines=self._counted["lines"],
            total=sweep.total.overlap(None),
            groups=tuple(sorted(overlaps, key=lambda each: (-each.exceeded, -each.most, each.group or ""))),
            keys=KeyOverlap(runs=keys.runs, most=keys.most, train=train, unique_key=key),
            findings=tuple(found.listed),
            counts=dict(found.counts),
            undecided=dict(found.undecided),
            notes=(*found.notes(), *self._notes_on_gaps(runs.missing_ids)),
        )

    def _notes_on_gaps(self, missing_runs: int) -> Iterator[str]:
        """What is not there cannot be verified."""
        for noun, missing in (("run", missing_runs), ("entry", self._counted["missing entries"])):
            if missing > 0:
                ids = count_noun(missing, "id")
                yield f"{ids} of the period have no {noun}: deleted, or never used; they are not verified"

    def _read_entries(self, group_since: Mapping[int, datetime]) -> KeySweep:
        keys, reader = KeySweep(), self._reader
        parts = self._load_timed_manifests(group_since)
        first: dict[int, TimedManifest] = next(parts, None) or {}
        watch = OccurrenceWatch(first)
        bounds = reader.bounds("work_queue", reader.end.entry_id)
        for rows in reader.rows(history.load_entries, *bounds):
            self._counted["entries"] += len(rows)
            for entry in rows:
                self._found.add(record_checks.check_entry(entry, reader.end.now))
                self._found.add(watch.add(entry))
                if entry.unique_key is not None and entry.run_created_at is not None:
                    self._found.add(_check_key(keys, entry))
                if entry.group_row is None and entry.group_id is not None:
                    self._removed_groups.add(entry.group_id)
            self._check_policies(rows)
            self._check_failures([each for each in rows if record_checks.is_unanswered_failure(each)])
            self._check_withdrawn([each for each in rows if record_checks.is_withdrawn(each)])
        self._counted["missing entries"] = bounds[1] - bounds[0] - self._counted["entries"]
        duplicates = self._read(present.find_duplicate_entries, after=bounds[0], last=bounds[1])
        self._found.add(present_checks.duplicate_entries(duplicates))
        self._finish_watch(watch)
        self._on_time = watch.on_time
        for manifests in parts:
            self._watch_more(
                OccurrenceWatch(manifests, watch.on_time), (min(manifests), max(manifests)), bounds
            )
        return keys

    def _load_timed_manifests(
        self, group_since: Mapping[int, datetime]
    ) -> Iterator[dict[int, TimedManifest]]:
        """The manifests whose occurrences are checked, as many at once as fit into memory."""
        after = 0
        while manifests := self._read(history.load_timed_manifests, after=after, limit=MAX_TIMED_MANIFESTS):
            yield {each.id: _include_group(each, group_since) for each in manifests}
            after = manifests[-1].id

    def _watch_more(
        self, watch: OccurrenceWatch, manifests: tuple[int, int], bounds: tuple[int, int]
    ) -> None:
        """Read the entries of further manifests, which did not fit into the first pass."""
        load = partial(history.load_entries_of, manifests=manifests)
        for rows in self._reader.rows(load, *bounds):
            for entry in rows:
                self._found.add(watch.add(entry))
        self._finish_watch(watch)

    def _finish_watch(self, watch: OccurrenceWatch) -> None:
        reader = self._reader
        self._found.add(watch.finish(reader.until or reader.end.now, reader.since))
        self._found.leave_undecided(FindingKind.OCCURRENCE_MISSED, watch.undecided)

    def _check_policies(self, entries: Sequence[EntryRow]) -> None:
        """Without a policy of its own, a job has that of the settings, which is in no record of the past."""
        default = max(1, Settings().default_max_attempts)
        retried = (entry for entry in entries if entry.attempt > default)
        unknown = sum(record_checks.max_attempts(entry) is None for entry in retried)
        self._found.leave_undecided(FindingKind.TOO_MANY_ATTEMPTS, unknown)

    def _check_failures(self, failed: Sequence[EntryRow]) -> None:
        """Failed jobs must have a dead letter. Only a resolved one may have been deleted since."""
        if not failed:
            return
        ids = [entry.run_id for entry in failed if entry.run_id is not None]
        answered, is_complete = self._read(_find_answers, ids)
        lost = [entry for entry in failed if entry.run_id not in answered]
        if not lost:
            return
        for entry in lost:
            age = self._reader.end.now - (entry.run_ended_at or entry.created_at)
            is_too_young = self._retention is not None and age <= self._retention
            if is_complete or is_too_young:
                self._found.add([record_checks.failure_lost(entry)])
            else:
                self._found.leave_undecided(FindingKind.FAILURE_LOST)

    def _check_withdrawn(self, cancelled: Sequence[EntryRow]) -> None:
        """Entries that only an operator or a program can have cancelled. A program leaves no record."""
        if cancelled:
            recorded = self._read(recorded_changes.load_cancelled_entries)
            unknown = sum(entry.id not in recorded for entry in cancelled)
            self._found.leave_undecided(FindingKind.CANCELLED_BY_NOBODY, unknown)

    def _read_letters(self) -> None:
        reader = self._reader
        for rows in reader.rows(history.load_letters, 0, reader.end.letter_id):
            for letter in rows:
                if not reader.has(letter.dead_lettered_at):
                    continue
                self._counted["letters"] += 1
                self._found.add(record_checks.check_letter(letter, reader.end.run_id))
                if letter.group_row is None and letter.group_id is not None:
                    self._removed_groups.add(letter.group_id)
                if record_checks.is_requeue_missing(letter) and not record_checks.is_requeue_decidable(
                    letter
                ):
                    self._found.leave_undecided(FindingKind.REQUEUE_LOST)
        self._found.add(present_checks.duplicate_letters(self._read(present.find_duplicate_letters)))

    def _check_removed_groups(self, names: Mapping[int, str]) -> None:
        """Groups that records name, and groups whose limit an operator set, must not disappear."""
        self._found.leave_undecided(FindingKind.GROUP_REMOVED, len(self._removed_groups - names.keys()))
        edited = self._read(recorded_changes.load_edited_groups)
        for name in sorted(edited.keys() - set(names.values())):
            text = (
                f"group {name!r} does not exist, though an operator changed its limits at "
                f"{edited[name]:%Y-%m-%d %H:%M:%S}Z: they are lost"
            )
            self._found.add([HistoryFinding(FindingKind.GROUP_REMOVED, "group", (), text)])

    def _read_lines(self) -> None:
        reader = self._reader
        for start, end in reader.spans(*reader.bounds("log", reader.end.line_id)):
            lines, orphans = self._read(history.load_orphaned_lines, after=start, up_to=end)
            self._counted["lines"] += lines
            self._found.add(map(_line_orphan, orphans))


def _load_limits(connection: Connection, declared: Sequence[LimitChange]) -> KnownLimits:
    recorded = recorded_changes.load_limit_changes(connection)
    changes = sorted([*declared, *recorded], key=lambda change: change.at)
    groups = recorded_changes.load_groups(connection)
    stored = recorded_changes.load_stored_setting(connection, GLOBAL_LIMIT)
    is_complete = recorded_changes.is_audit_complete(connection)
    return KnownLimits(
        global_timeline(changes, stored),
        group_timelines(groups, changes, is_complete=is_complete),
        last_enabled_changes(groups, changes, is_complete=is_complete),
        ExemptTrains(changes),
        shortest_retention(changes, recorded_changes.load_stored_setting(connection, RETENTION)),
        {group.id: group.name for group in groups},
    )


def _include_group(manifest: TimedManifest, group_since: Mapping[int, datetime]) -> TimedManifest:
    """Count a change of its group as one of the manifest; a group that is not known was just created."""
    since = group_since.get(manifest.group_id, datetime.max.replace(tzinfo=UTC))
    return manifest._replace(changed_at=max(manifest.changed_at, since))


def _find_answers(connection: Connection, run_ids: Sequence[int]) -> tuple[set[int], bool]:
    return history.find_dead_lettered(connection, run_ids), history.are_letters_complete(connection)


def _check_key(keys: KeySweep, entry: EntryRow) -> Iterator[HistoryFinding]:
    run_id, admitted_at = entry.run_id or 0, entry.run_created_at or entry.created_at
    key = (entry.train, entry.unique_key or "")
    others = keys.add(
        run_id, key, created_at=entry.created_at, admitted_at=admitted_at, ended_at=entry.run_ended_at
    )
    if others:
        text = f"run {run_id} was active together with run {others[0]}: both have the unique key {key[1]!r}"
        yield HistoryFinding(FindingKind.KEY_OVERLAP, "run", (run_id, *others), text)


def _line_orphan(line_id: int) -> HistoryFinding:
    text = f"log line {line_id} belongs to a run that does not exist"
    return HistoryFinding(FindingKind.ORPHAN, "log line", (line_id,), text)
