"""`trax verify`: read the whole history of a database, and report what must not be in it.

It reads in chunks along the ids, each in a short transaction, and keeps only what is active at the moment of
the sweep. Rows written after the start are not read.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

from trax.engine.live_settings import GLOBAL_LIMIT
from trax.engine.retry import rules_of
from trax.inspect import record_checks
from trax.inspect.limits_in_force import (
    LimitTimeline,
    global_timeline,
    group_timelines,
    last_enabled_changes,
    limit_text,
)
from trax.inspect.missed_occurrences import OVERDUE, MinuteSet, OccurrenceWatch, check_state
from trax.inspect.sweep import AdmittedRun, AttemptSweep, KeySweep, LimitSweep
from trax.records.verification import FindingKind, HistoryFinding, KeyOverlap, Verification
from trax.settings import Settings
from trax.store import history
from trax.store.manifests import manifest_due

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from trax.inspect.sweep import LimitViolation
    from trax.store import Connection, Store
    from trax.store.history import EntryRow, HistoryEnd, LetterRow, RunRow, TimedManifest

    Progress = Callable[[int, int], None]
    """Called with the number of ids that have been read, and the number of all."""

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", "RunRow", "EntryRow", "LetterRow")

CHUNK: Final = 5_000
SPAN: Final = 100_000
"""How many ids are searched at once by a condition that few rows meet."""
MAX_FINDINGS: Final = 100
"""How many findings of one kind are listed; all are counted."""
MAX_TIMED_MANIFESTS: Final = 100_000
LOST_FOR: Final = timedelta(minutes=10)
"""A run without a live worker for this long is lost, if a server was running: it detects that after 20 s."""
ALIVE_FOR: Final = timedelta(minutes=1)
RECENT: Final = timedelta(hours=1)
"""If others were queued in this time, a manager works."""


def verify(
    store: Store,
    *,
    since: datetime | timedelta | None = None,
    until: datetime | timedelta | None = None,
    on_progress: Progress | None = None,
    chunk: int = CHUNK,
) -> Verification:
    """Verify the records that were created from `since` until before `until`; None is all time.

    A duration is a moment before now.
    """
    end = store.read(lambda connection: history.load_end(connection, store.now(connection)))
    reader = HistoryReader(store, end, _moment(since, end.now), _moment(until, end.now), chunk)
    reader.on_progress = on_progress
    return _Verifier(reader).verify()


def _moment(value: datetime | timedelta | None, now: datetime) -> datetime | None:
    return now - value if isinstance(value, timedelta) else value


class Findings:
    """The findings so far: the first of each kind, and counts of all."""

    def __init__(self) -> None:
        self.listed: list[HistoryFinding] = []
        self.counts: Counter[FindingKind] = Counter()
        self.undecided: Counter[FindingKind] = Counter()

    def add(self, findings: Iterable[HistoryFinding]) -> None:
        for finding in findings:
            self.counts[finding.kind] += 1
            if self.counts[finding.kind] <= MAX_FINDINGS:
                self.listed.append(finding)

    def leave_undecided(self, kind: FindingKind, count: int = 1) -> None:
        if count:
            self.undecided[kind] += count


class HistoryReader:
    """Reads the tables in chunks along their ids, within the period, and reports the progress."""

    def __init__(
        self, store: Store, end: HistoryEnd, since: datetime | None, until: datetime | None, chunk: int
    ) -> None:
        self.end = end
        self.since = since
        self.until = until
        self.on_progress: Progress | None = None
        self._store = store
        self._chunk = chunk
        self._all = max(1, end.run_id + end.entry_id + end.letter_id + end.line_id)
        self._done = 0

    def read(self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._store.read(history.read_only, function, *args, **kwargs)

    def rows(self, load: Callable[..., list[R]], after: int, last: int) -> Iterator[list[R]]:
        """The rows above `after`, up to `last`, chunk by chunk."""
        while after < last:
            rows = self.read(load, after=after, last=last, limit=self._chunk)
            if not rows:
                break
            yield rows
            self.advance(rows[-1].id - after)
            after = rows[-1].id
        self.advance(last - after)

    def spans(self, after: int, last: int) -> Iterator[tuple[int, int]]:
        """Ranges of ids, for reads with a condition that few rows meet."""
        for start in range(after, last, SPAN):
            stop = min(start + SPAN, last)
            yield start, stop
            self.advance(stop - start)

    def bounds(self, table: str, last: int) -> tuple[int, int]:
        """The ids of a table within the period: above the first, up to the second."""
        first = 0 if self.since is None else self.find(table, self.since, last)
        stop = last if self.until is None else self.find(table, self.until, last)
        self.advance(first + last - max(first, stop))
        return first, max(first, stop)

    def find(self, table: str, moment: datetime, last: int) -> int:
        return self.read(history.find_first, table, moment, last=last)

    def has(self, moment: datetime) -> bool:
        """Whether a moment is in the period."""
        return (self.since is None or moment >= self.since) and (self.until is None or moment < self.until)

    def advance(self, ids: int) -> None:
        self._done = min(self._all, self._done + ids)
        if self.on_progress is not None:
            self.on_progress(self._done, self._all)


class _Verifier:
    """Reads one table after the other and feeds the checks."""

    def __init__(self, reader: HistoryReader) -> None:
        self._reader = reader
        self._read = reader.read
        self._found = Findings()
        self._counted: Counter[str] = Counter()
        self._names: dict[int, str] = {}
        self._on_time = MinuteSet()

    def verify(self) -> Verification:
        self._names = {group.id: group.name for group in self._read(history.load_groups)}
        limits = self._read(_load_limits)
        sweep = self._sweep_runs(LimitSweep(limits.total, limits.groups))
        keys = self._read_entries(limits.enabled_since)
        self._read_letters()
        self._read_lines()
        self._check_present()
        self._found.leave_undecided(FindingKind.LIMIT_EXCEEDED, sweep.total.uncertain_admissions)
        overlaps = [each.overlap(self._name(group_id)) for group_id, each in sweep.groups.items()]
        reader, found = self._reader, self._found
        train, key = keys.most_key or (None, None)
        return Verification(
            at=reader.end.now,
            since=reader.since,
            until=reader.until,
            runs=self._counted["runs"],
            entries=self._counted["entries"],
            dead_letters=self._counted["letters"],
            log_lines=self._counted["lines"],
            total=sweep.total.overlap(None),
            groups=tuple(sorted(overlaps, key=lambda each: (-each.exceeded, -each.most, each.group or ""))),
            keys=KeyOverlap(runs=keys.runs, most=keys.most, train=train, unique_key=key),
            findings=tuple(found.listed),
            counts=dict(found.counts),
            undecided=dict(found.undecided),
        )

    def _sweep_runs(self, sweep: LimitSweep) -> LimitSweep:
        reader, last = self._reader, self._reader.end.run_id
        first, stop = reader.bounds("metadata", last)
        if reader.since is not None:
            for start, end in reader.spans(0, first):
                self._count_before(sweep, reader.since, start, end)
        attempts = AttemptSweep()
        for rows in reader.rows(history.load_runs, first, stop):
            self._counted["runs"] += len(rows)
            for run in rows:
                self._found.add(_check_run(attempts, run))
                if not run.exempt:
                    admitted = AdmittedRun(
                        run.id, run.group_id, run.created_at, run.ended_at, run.submitter is None
                    )
                    self._found.add(map(self._limit_finding, sweep.add(admitted)))
        return sweep

    def _count_before(self, sweep: LimitSweep, since: datetime, start: int, end: int) -> None:
        for run in self._read(history.load_active_at, since, after=start, up_to=end):
            is_direct = run.submitter is None
            sweep.count_before(AdmittedRun(run.id, run.group_id, run.created_at, run.ended_at, is_direct))

    def _limit_finding(self, violation: LimitViolation) -> HistoryFinding:
        run, group_id = violation.run, violation.group_id
        where = "" if group_id is None else f" to group {self._name(group_id)!r}"
        which = "global limit" if group_id is None else "limit of the group"
        text = (
            f"run {run.id} was admitted{where} at {run.admitted_at:%Y-%m-%d %H:%M:%S.%f}Z while "
            f"{violation.active} runs were active; the {which} was {limit_text(violation.limit)}"
        )
        return HistoryFinding(FindingKind.LIMIT_EXCEEDED, "run", (run.id,), text)

    def _read_entries(self, group_since: Mapping[int, datetime]) -> KeySweep:
        keys, reader = KeySweep(), self._reader
        parts = self._load_timed_manifests(group_since)
        first: dict[int, TimedManifest] = next(parts, None) or {}
        watch = OccurrenceWatch(first)
        bounds = reader.bounds("work_queue", reader.end.entry_id)
        for rows in reader.rows(history.load_entries, *bounds):
            self._counted["entries"] += len(rows)
            for entry in rows:
                self._found.add(record_checks.check_entry(entry))
                self._found.add(watch.add(entry))
                if entry.unique_key is not None and entry.run_created_at is not None:
                    self._found.add(_check_key(keys, entry))
            self._check_failures([each for each in rows if record_checks.is_unanswered_failure(each)])
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

    def _check_failures(self, failed: Sequence[EntryRow]) -> None:
        """Failed jobs must have a dead letter; if one was deleted, its job cannot be judged."""
        if not failed:
            return
        ids = [entry.run_id for entry in failed if entry.run_id is not None]
        answered, is_complete = self._read(_find_answers, ids)
        lost = [entry for entry in failed if entry.run_id not in answered]
        if is_complete:
            self._found.add(map(record_checks.failure_lost, lost))
        else:
            self._found.leave_undecided(FindingKind.FAILURE_LOST, len(lost))

    def _read_letters(self) -> None:
        reader = self._reader
        for rows in reader.rows(history.load_letters, 0, reader.end.letter_id):
            for letter in rows:
                if not reader.has(letter.dead_lettered_at):
                    continue
                self._counted["letters"] += 1
                self._found.add(record_checks.check_letter(letter))
                if record_checks.is_requeue_missing(letter) and not record_checks.is_requeue_decidable(
                    letter
                ):
                    self._found.leave_undecided(FindingKind.REQUEUE_LOST)

    def _read_lines(self) -> None:
        reader = self._reader
        for start, end in reader.spans(*reader.bounds("log", reader.end.line_id)):
            lines, orphans = self._read(history.load_orphaned_lines, after=start, up_to=end)
            self._counted["lines"] += lines
            self._found.add(map(_line_orphan, orphans))

    def _check_present(self) -> None:
        """Check what is active now, unless the period has ended before."""
        now = self._reader.end.now
        if not self._reader.has(now):
            return
        for each in self._read(history.load_crowded_manifests):
            text = (
                f"manifest {each.external_id!r} ({each.id}) has {each.runs} scheduled runs active; "
                f"max_instances is {each.max_instances}"
            )
            self._found.add([HistoryFinding(FindingKind.TOO_MANY_INSTANCES, "manifest", (each.id,), text)])
        self._check_unattended(now)
        self._check_lost_runs(now)

    def _check_unattended(self, now: datetime) -> None:
        """Check manifests that have no next due time, or an old one, if others were queued since."""
        rules, threshold = rules_of(Settings()), Settings().default_misfire_threshold
        due = self._read(history.load_unattended, due_before=now - OVERDUE)
        for start in range(0, len(due), CHUNK):
            since = dict(due[start : start + CHUNK])
            states = self._read(manifest_due.load_states_unlocked, [*since], default_threshold=threshold)
            for state in states:
                finding = check_state(state, rules, now)
                if finding is None:
                    continue
                if self._on_time.first_between(since[state.id] or now - RECENT, now) is None:
                    self._found.leave_undecided(finding.kind)
                else:
                    self._found.add([finding])

    def _check_lost_runs(self, now: datetime) -> None:
        lost = self._read(history.load_lost_runs, started_before=now - LOST_FOR)
        limits = {"started_before": now - LOST_FOR, "alive_since": now - ALIVE_FOR}
        if lost and not self._read(history.has_server_since, **limits):
            self._found.leave_undecided(FindingKind.RUN_LOST, len(lost))
            return
        for run in lost:
            text = (
                f"run {run.id} is in progress, but its worker {run.worker_id} is gone and no server ended it"
            )
            self._found.add([HistoryFinding(FindingKind.RUN_LOST, "run", (run.id,), text)])

    def _name(self, group_id: int) -> str:
        return self._names.get(group_id, f"(deleted group {group_id})")


class KnownLimits(NamedTuple):
    """The limits over time, globally and by group id; since when each group is enabled or not."""

    total: LimitTimeline
    groups: dict[int, LimitTimeline]
    enabled_since: dict[int, datetime]


def _load_limits(connection: Connection) -> KnownLimits:
    changes, groups = history.load_limit_changes(connection), history.load_groups(connection)
    stored = history.load_stored_setting(connection, GLOBAL_LIMIT)
    is_complete = history.is_audit_complete(connection)
    return KnownLimits(
        global_timeline(changes, stored),
        group_timelines(groups, changes, is_complete=is_complete),
        last_enabled_changes(groups, changes, is_complete=is_complete),
    )


def _include_group(manifest: TimedManifest, group_since: Mapping[int, datetime]) -> TimedManifest:
    """Count a change of its group as one of the manifest; a group that is not known was just created."""
    since = group_since.get(manifest.group_id, datetime.max.replace(tzinfo=UTC))
    return manifest._replace(changed_at=max(manifest.changed_at, since))


def _find_answers(connection: Connection, run_ids: Sequence[int]) -> tuple[set[int], bool]:
    return history.find_dead_lettered(connection, run_ids), history.are_letters_complete(connection)


def _check_run(attempts: AttemptSweep, run: RunRow) -> Iterator[HistoryFinding]:
    """The findings of a run; two attempts at once, unless one of them is a finding for that already."""
    findings = list(record_checks.check_run(run))
    yield from findings
    if any(each.kind is FindingKind.EXECUTED_TWICE for each in findings):
        return
    earlier = attempts.add(run.id, run.external_id, admitted_at=run.created_at, ended_at=run.ended_at)
    if earlier is not None:
        yield record_checks.attempts_overlap(run, earlier)


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
