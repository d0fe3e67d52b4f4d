"""The promises that hold after every transaction of a simulation, whatever goes wrong.

Each change of a row (`change_log.py`) is held against copies of the rows after each commit, so that the cost
is that of the changes, and no passing violation can be missed.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.support.change_log import COLUMNS, open_change_log

from trax.inspect.simulation import Observer
from trax.store.types import utc_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime, timedelta

    from tests.support.change_log import Change

    from trax.inspect.simulation import Simulation
    from trax.inspect.virtual_server import VirtualServer
    from trax.settings import Settings

ACTIVE: Final = ("pending", "in_progress")
MOVES: Final = {
    None: {"pending", "in_progress", "completed"},
    "pending": {"pending", "in_progress", "cancelled", "failed"},
    "in_progress": {"in_progress", "completed", "failed", "cancelled"},
}
PUT_BACK: Final = ("Interrupted", "Snooze", "NoWorker")
BY_SCHEDULE: Final = ("schedule", "retry")
BLOCKING: Final = ("schedule", "retry", "requeue")
UNSTARTABLE: Final = "rare"
"""The train that not every worker has."""


@dataclass(slots=True)
class Entry:
    """A copy of a row of the queue."""

    status: str
    ready: int
    manifest_id: int | None
    origin: str
    group_id: int | None
    group_priority: int
    priority: int
    created_at: str
    metadata_id: int | None
    parked: str | None
    attempt: int
    external_id: str
    train: str


@dataclass(slots=True)
class RunRow:
    """A copy of a record."""

    state: str
    worker_id: int | None
    manifest_id: int | None
    group_id: int | None
    exempt: int
    started_at: str | None
    ended_at: str | None
    created_at: str
    failure_exception: str | None
    external_id: str
    train: str

    @property
    def is_active(self) -> bool:
        return self.state in ACTIVE

    @property
    def is_put_back(self) -> bool:
        return self.state == "cancelled" and self.failure_exception in PUT_BACK


@dataclass(slots=True)
class Tables:
    """Copies of what matters: the rows that are not over, and the rules in force."""

    entries: dict[int, Entry] = field(default_factory=dict[int, Entry])
    """Queued entries, and dispatched ones whose run is active."""
    by_external_id: dict[str, int] = field(default_factory=dict[str, int])
    active: dict[int, RunRow] = field(default_factory=dict[int, RunRow])
    entries_of: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    runs_of: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    letter_runs: set[int] = field(default_factory=set[int])
    """The runs after which a job without a manifest became a dead letter."""
    awaiting: Counter[int] = field(default_factory=Counter[int])
    """How many dead letters of a manifest await a person."""
    manifests: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    groups: dict[int, tuple[str, int | None, bool]] = field(
        default_factory=dict[int, tuple[str, "int | None", bool]]
    )
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    workers: dict[int, str] = field(default_factory=dict[int, str])

    def keep_entry(self, entry_id: int, entry: Entry) -> None:
        self.entries[entry_id] = entry
        self.by_external_id[entry.external_id] = entry_id
        if entry.manifest_id is not None:
            self.entries_of[entry.manifest_id].add(entry_id)

    def drop_entry(self, entry_id: int) -> None:
        entry = self.entries.pop(entry_id, None)
        if entry is not None:
            self.by_external_id.pop(entry.external_id, None)
            self.entries_of[entry.manifest_id or 0].discard(entry_id)

    def queued_of(self, manifest_id: int, origins: tuple[str, ...]) -> int:
        """How many entries of a manifest with these origins are in the queue."""
        own = (self.entries[entry_id] for entry_id in self.entries_of[manifest_id])
        return sum(entry.status == "queued" and entry.origin in origins for entry in own)


class Stop(NamedTuple):
    """A server that was asked to stop: when its grace period ends, as which worker, and what it ran then."""

    grace_ends_at: datetime
    worker_id: int
    run_ids: frozenset[int]


class BrokenPromise(AssertionError):
    """Something that must never happen has happened."""


class Promises(Observer):
    """Holds every commit against the promises, and counts what happened."""

    def __init__(self, simulation: Simulation, base: Settings, url: str | None = None) -> None:
        self.simulation = simulation
        self.base = base
        self._url = url
        self.tables = Tables()
        self.started: set[int] = set()
        self.counts: Counter[str] = Counter()
        self.admissions = 0
        self._step = ""
        self._server: VirtualServer | None = None
        self._stops: dict[str, Stop] = {}
        self._new_attempts: dict[int, int] = {}
        """By entry: how many attempts were added in this transaction."""
        self._new_failures: Counter[int] = Counter()
        """By manifest: how many failures were added in this transaction."""
        self._notes: dict[str, Callable[[Change], None]] = {
            "worker": self._note_worker,
            "manifest_group": self._note_group,
            "manifest": self._note_manifest,
            "dead_letter": self._note_letter,
            "setting": self._note_setting,
        }
        simulation.store.run(self._attach)

    def _attach(self, connection: Any) -> None:
        self._log = open_change_log(connection, self._url)

    # what the simulation reports

    def on_start(self, server: VirtualServer, metadata_id: int) -> None:
        run = self.tables.active.get(metadata_id)
        if metadata_id in self.started:
            self.fail(2, f"run {metadata_id} is executed a second time, by {server.name}")
        if run is None or run.state != "in_progress" or run.worker_id != server.worker_id:
            self.fail(2, f"{server.name} executes run {metadata_id}, which it does not hold")
        if server.is_stopping:
            self.fail(8, f"{server.name} is stopping, and starts run {metadata_id}")
        self.started.add(metadata_id)

    def note_stop(self, server: VirtualServer) -> None:
        """A server was asked to stop, and was not before."""
        grace = server.context.settings.shutdown_timeout / server.clock_rate
        stop = Stop(self.simulation.now + grace, server.worker_id, frozenset(server.runs))
        self._stops.setdefault(server.name, stop)

    def on_commit(self, step: str, server: VirtualServer | None) -> None:
        changes = self._log.drain()
        if not changes:
            return
        admitted, ended = list[int](), list[tuple[int, RunRow]]()
        inserted: list[Entry] = []
        self._step, self._server = step, server
        self._new_attempts.clear()
        self._new_failures.clear()
        for change in changes:
            if change.table == "metadata":
                self._note_run(change, admitted, ended)
            elif change.table == "work_queue":
                self._note_entry(change, inserted)
            else:
                self._notes[change.table](change)
        self._check_ended(ended)
        self._check_failures_added(ended)
        self._drop_ended_entries(changes)
        if admitted:
            self._check_limits(admitted)
            self._check_order(admitted)
        self._check_inserted(inserted)
        self._check_silence(changes)

    def close(self) -> None:
        self._log.close()

    def fail(self, promise: int, problem: str) -> None:
        now = self.simulation.now
        raise BrokenPromise(f"promise {promise}, at {now:%Y-%m-%d %H:%M:%S}.{now.microsecond:06d}: {problem}")

    # rows

    def _note_run(self, change: Change, admitted: list[int], ended: list[tuple[int, RunRow]]) -> None:
        if change.new is None:
            if change.old is not None and not change.old[10].startswith("trax."):
                self.fail(12, f"the record of run {change.id} was deleted in step {self._step}")
            return
        new, old = RunRow(*change.new), RunRow(*change.old) if change.old else None
        if new.train.startswith("trax."):
            return
        self._check_move(change.id, old, new)
        if old is None:
            admitted.append(change.id)
        elif old.is_active and not new.is_active:
            ended.append((change.id, new))
            self._check_holder(change.id, old, new)
        of_manifest = self.tables.runs_of[new.manifest_id or 0]
        if new.is_active:
            self.tables.active[change.id] = new
            of_manifest.add(change.id)
        else:
            self.tables.active.pop(change.id, None)
            of_manifest.discard(change.id)

    def _check_move(self, run_id: int, old: RunRow | None, new: RunRow) -> None:
        """A run moves from state to state, never back, and its times are those of the database."""
        before = old.state if old else None
        if new.state not in MOVES.get(before, set()):
            self.fail(2, f"run {run_id} went from {before} to {new.state}")
        for name in ("created_at", "started_at", "ended_at"):
            moment = getattr(new, name)
            if moment != (getattr(old, name) if old else None) and moment != self._stamp:
                self.fail(0, f"run {run_id}: {name} is {moment}, not the time of the database")
        self.counts["claims"] += before == "pending" and new.state == "in_progress"

    def _check_holder(self, run_id: int, old: RunRow, new: RunRow) -> None:
        """Only the holder ends a run; others only when it is silent, and an operator before the start."""
        self.counts[f"runs {new.state}"] += 1
        server = self._server
        if self._step in ("flush", "dispatch"):
            if server is None or old.worker_id != server.worker_id or old.state != "in_progress":
                self.fail(3, f"run {run_id} was ended by {server and server.name}, who did not hold it")
                return
            stop = self._stops.get(server.name)
            if new.failure_exception == "Interrupted" and stop is not None and run_id in stop.run_ids:
                self.counts["runs interrupted by a stop"] += 1
                if server.worker_id == stop.worker_id and self.simulation.now < stop.grace_ends_at:
                    self.fail(8, f"{server.name} interrupted run {run_id} before its grace period was over")
        elif old.state == "in_progress":
            beat = self.tables.workers.get(old.worker_id or 0)
            if beat is not None and beat >= utc_text(
                self.simulation.now - self._setting("worker_lost_after")
            ):
                self.fail(7, f"run {run_id} of a live worker was ended in step {self._step}")
            self.counts["runs of lost workers"] += 1

    def _note_entry(self, change: Change, inserted: list[Entry]) -> None:
        t = self.tables
        if change.new is None:
            self.fail(1, f"entry {change.id} was deleted")
            return
        entry = Entry(*change.new)
        if change.old is not None:
            self._new_attempts[change.id] = entry.attempt - Entry(*change.old).attempt
        else:
            inserted.append(entry)
            self.counts[f"entries by {entry.origin}"] += 1
            if entry.created_at != self._stamp:
                self.fail(0, f"entry {change.id} was created at {entry.created_at}, not now")
        if entry.status == "cancelled":
            t.drop_entry(change.id)
            return
        t.keep_entry(change.id, entry)

    def _note_worker(self, change: Change) -> None:
        if change.new is None:
            beat = self.tables.workers.pop(change.id)
            silent_since = utc_text(self.simulation.now - self._setting("worker_lost_after"))
            if self._step != "leave" and beat >= silent_since:
                self.fail(7, f"worker {change.id} was declared lost, and was not silent")
            return
        self.tables.workers[change.id] = change.new[0]

    def _note_group(self, change: Change) -> None:
        self.tables.groups.pop(change.id, None)
        if change.new is not None:
            name, limit, enabled, _ = change.new
            self.tables.groups[change.id] = (name, limit, bool(enabled))

    def _note_manifest(self, change: Change) -> None:
        if change.new is None:
            self.fail(12, f"manifest {change.id} was deleted")
            return
        self.tables.manifests[change.id] = dict(zip(COLUMNS["manifest"].split(), change.new, strict=True))
        if change.old is not None:
            self._new_failures[change.id] += change.new[-1] - change.old[-1]

    def _note_setting(self, change: Change) -> None:
        self.tables.settings.pop(change.id, None)
        if change.new is not None:
            self.tables.settings[change.id] = json.loads(change.new[1])

    def _note_letter(self, change: Change) -> None:
        if change.new is None:
            if change.old is None or change.old[0] == "awaiting_intervention":
                self.fail(12, f"dead letter {change.id} was deleted while it awaited a person")
            return
        if change.old is None:
            self.counts["dead letters"] += 1
        for row, sign in ((change.old, -1), (change.new, 1)):
            if row is not None:
                self.tables.awaiting[row[1] or 0] += sign * (row[0] == "awaiting_intervention")
        self.tables.letter_runs.add(change.new[2])

    # promises

    def _check_ended(self, ended: Iterable[tuple[int, RunRow]]) -> None:
        """What failed or was put back is in the queue again, a dead letter, or left to its manifest."""
        t = self.tables
        for run_id, run in ended:
            entry_id = t.by_external_id.get(run.external_id)
            entry = t.entries.get(entry_id or 0)
            if entry is None or entry_id is None:
                self.fail(1, f"run {run_id} has ended, and its entry is unknown")
                return
            is_queued = entry.status == "queued"
            if run.is_put_back and not is_queued:
                self.fail(1, f"run {run_id} was put back, and its entry {entry_id} is not in the queue")
            if run.is_put_back and (self._new_attempts[entry_id] or run_id in t.letter_runs):
                self.fail(8, f"run {run_id} was put back, and it counts as an attempt of entry {entry_id}")
            is_alone = run.manifest_id is None and not is_queued
            if run.state == "failed" and is_alone and run_id not in t.letter_runs:
                self.fail(1, f"run {run_id} failed for good, without a dead letter")
            if run.state == "failed" and run.manifest_id is not None:
                self._check_failed_manifest(run_id, run.manifest_id)
            if not is_queued:
                t.drop_entry(entry_id)

    def _check_failures_added(self, ended: Iterable[tuple[int, RunRow]]) -> None:
        """Only runs that were not put back may count as failures of their manifest."""
        own = Counter(run.manifest_id for _, run in ended if not run.is_put_back)
        for manifest_id, count in self._new_failures.items():
            if count > own[manifest_id]:
                name = self.tables.manifests[manifest_id]["external_id"]
                self.fail(
                    8, f"manifest {name!r} has {count} more failures, and {own[manifest_id]} runs ended"
                )

    def _drop_ended_entries(self, changes: Iterable[Change]) -> None:
        """Forget entries that changed after their run had ended, as when another job takes their key."""
        for change in changes:
            entry = self.tables.entries.get(change.id) if change.table == "work_queue" else None
            is_over = entry is not None and entry.metadata_id not in self.tables.active
            if entry is not None and is_over and entry.status == "dispatched":
                self.tables.drop_entry(change.id)

    def _check_failed_manifest(self, run_id: int, manifest_id: int) -> None:
        manifest = self.tables.manifests[manifest_id]
        if manifest["enabled"] and not manifest["next_due_at"] and not self._has_reason(manifest_id):
            self.fail(11, f"run {run_id} failed, and manifest {manifest['external_id']!r} has no next check")

    def _check_limits(self, admitted: list[int]) -> None:
        t = self.tables
        self.admissions += len(admitted)
        runs = [run for run in t.active.values() if not run.exempt]
        new = [t.active[run_id] for run_id in admitted if run_id in t.active and not t.active[run_id].exempt]
        limit = t.settings.get("max_active_jobs", self.base.max_active_jobs)
        if new and limit is not None and len(runs) > limit:
            self.fail(4, f"{len(runs)} runs are active, and max_active_jobs is {limit}")
        by_group = Counter(run.group_id for run in runs)
        for group_id in {run.group_id for run in new if run.group_id is not None}:
            name, most, enabled = t.groups[group_id]
            most = most if enabled else 0
            if most is not None and by_group[group_id] > most:
                self.fail(4, f"{by_group[group_id]} runs of group {name!r} are active; its limit is {most}")

    def _check_order(self, admitted: list[int]) -> None:
        """The entries that were admitted are the first in order that could start."""
        t = self.tables
        entries = [t.by_external_id[t.active[run_id].external_id] for run_id in admitted]
        keys = [_order(entry_id, t.entries[entry_id]) for entry_id in entries]
        if keys != sorted(keys):
            self.fail(5, f"runs {admitted} were not admitted in the order of their entries")
        head = self._log.first_ready_ids(30)
        # An exempt entry counts in the cycle that admits it, and the next cycle follows at once.
        new = set(admitted)
        by_group = Counter(
            run.group_id for run_id, run in t.active.items() if not run.exempt or run_id in new
        )
        most_at_once = t.settings.get("max_queued_jobs_per_cycle", self.base.max_queued_jobs_per_cycle)
        taken = Counter(t.entries[entry_id].group_id for entry_id in entries)
        for entry_id in head:
            entry = t.entries[entry_id]
            if _order(entry_id, entry) > keys[-1] or entry.train == UNSTARTABLE:
                continue
            group_id = entry.group_id
            if group_id is not None:
                _, limit, enabled = t.groups[group_id]
                is_full = not enabled or (limit is not None and by_group[group_id] >= limit)
                if is_full or (most_at_once is not None and taken[group_id] >= most_at_once):
                    continue
            what = f"{entry.train}, group {group_id and t.groups[group_id]}, {by_group[group_id]} active"
            self.fail(5, f"entry {entry_id} ({what}) could start, and a later one was admitted before it")

    def _check_inserted(self, inserted: list[Entry]) -> None:
        t = self.tables
        for entry in inserted:
            if entry.manifest_id is None or entry.origin not in BY_SCHEDULE:
                continue
            manifest = t.manifests[entry.manifest_id]
            name, queued = manifest["external_id"], t.queued_of(entry.manifest_id, BY_SCHEDULE)
            if queued > 1:
                self.fail(6, f"manifest {name!r} has {queued} scheduled entries in the queue")
            active = len(t.runs_of[entry.manifest_id])
            if active >= manifest["max_instances"]:
                self.fail(6, f"manifest {name!r} was queued, and {active} runs of it are active")
            if not manifest["enabled"] or manifest["retired_at"]:
                self.fail(6, f"manifest {name!r} was queued, and it is disabled or retired")

    def _check_silence(self, changes: Iterable[Change]) -> None:
        """An enabled manifest has a next check, something in flight, or a reason to rest."""
        for change in changes:
            if change.table != "manifest" or change.new is None:
                continue
            manifest = self.tables.manifests[change.id]
            if manifest["next_due_at"] or not manifest["enabled"] or manifest["retired_at"]:
                continue
            if manifest["schedule_type"] in ("cron", "interval") and not self._has_reason(change.id):
                self.fail(11, f"manifest {manifest['external_id']!r} would never run again")

    def _has_reason(self, manifest_id: int) -> bool:
        """Whether a manifest rests because of its group, its parent, a dead letter, or what is in flight."""
        t = self.tables
        group_id, parent_id = self._log.group_and_parent(manifest_id)
        _, _, is_open = t.groups[group_id]
        parent = t.manifests.get(parent_id)
        return (
            not is_open
            or (parent is not None and bool(not parent["enabled"] or parent["retired_at"]))
            or self._is_awaiting(manifest_id)
            or bool(t.runs_of[manifest_id])
            or t.queued_of(manifest_id, BLOCKING) > 0
        )

    @property
    def is_drained(self) -> bool:
        """Whether nothing is queued or active."""
        return not (self.tables.entries or self.tables.active)

    def check_at_end(self) -> None:
        """Nothing is left once everything had time to end."""
        t = self.tables
        left = [entry_id for entry_id, entry in t.entries.items() if entry.status == "queued"]
        if left:
            self.fail(1, f"entries {left[:10]} are still in the queue, and nothing starts them")
        if t.active:
            self.fail(1, f"runs {list(t.active)[:10]} never ended")
        if repaired := self.simulation.counts["repaired manifests"]:
            self.fail(11, f"the watchdog had to repair {repaired} manifests")

    def _is_awaiting(self, manifest_id: int) -> bool:
        return self.tables.awaiting[manifest_id] > 0

    def _setting(self, name: str) -> timedelta:
        return getattr(self.base, name)

    @property
    def _stamp(self) -> str:
        return utc_text(self.simulation.now)


def _order(entry_id: int, entry: Entry) -> tuple[Any, ...]:
    return (-entry.group_priority, -entry.priority, entry.created_at, entry_id)
