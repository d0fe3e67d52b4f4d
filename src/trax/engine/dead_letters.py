"""Requeue and acknowledge dead letters; `dead_letter_cleanup` deletes old ones and old audit entries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from trax.engine.finish import record_cycle
from trax.engine.trigger import entry_from_row
from trax.records.states import DeadLetterStatus, Origin, ScheduleType
from trax.records.work_queue_entry import NewEntry, new_external_id
from trax.settings import Settings
from trax.store import Connection, Store, audit, dead_letters, dialect, groups, web_sessions, workers
from trax.store.manifests import manifest_results, manifest_rows
from trax.store.queue import work_queue
from trax.train import junction, train

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trax.store.dead_letters import LetterSelection


def requeue(connection: Connection, chosen: LetterSelection, *, note: str | None, now: datetime) -> list[int]:
    """Resolve the open dead letters among these and queue their jobs again; returns the resolved ids.

    If a manifest already has a queued entry that could start now, no second one is inserted: the dead letter
    is attached to that entry. A delayed entry (a retry or a delayed trigger) does not count, since the job is
    wanted now. A dormant manifest always gets a new entry: the queued one may have another input.
    """
    status = DeadLetterStatus.RETRIED
    letters = dead_letters.resolve(connection, status, chosen, note=note or "requeued", now=now)
    of_manifests = {letter.manifest_id: letter for letter in letters if letter.manifest_id is not None}
    manifest_results.reset_failures(connection, of_manifests)
    rows = manifest_rows.load_rows(connection, list(of_manifests))
    shared = {row.id: of_manifests[row.id].id for row in rows if not _is_dormant(row)}
    covered = work_queue.attach_dead_letters(connection, shared, now=now)
    entries = [_manifest_entry(row, of_manifests[row.id], now) for row in rows if row.id not in covered]
    alone = [letter for letter in letters if letter.manifest_id is None]
    group_ids = (letter.group_id for letter in alone if letter.group_id)
    priorities = groups.priorities(connection, group_ids)
    entries += [_letter_entry(letter, priorities.get(letter.group_id, 0)) for letter in alone]
    work_queue.add(connection, [entry for entry in entries if entry.unique_key is None], now=now)
    _add_unique(connection, (entry for entry in entries if entry.unique_key is not None), now)
    manifest_rows.mark_due(
        connection, list(of_manifests), now=now
    )  # the dead letter may be on a trigger's entry
    return sorted(letter.id for letter in letters)


def acknowledge(connection: Connection, chosen: LetterSelection, *, note: str, now: datetime) -> list[int]:
    """Resolve the open dead letters among these; their manifests run again. Returns the resolved ids.

    A `once` manifest has no further occurrence, so it is disabled; a trigger can still run it.
    """
    status = DeadLetterStatus.ACKNOWLEDGED
    letters = dead_letters.resolve(connection, status, chosen, note=note, now=now)
    of_manifests = [letter.manifest_id for letter in letters if letter.manifest_id is not None]
    manifest_results.reset_failures(connection, of_manifests)
    manifest_rows.disable_once(connection, of_manifests, now=now)
    manifest_rows.mark_due(connection, of_manifests, now=now)
    return sorted(letter.id for letter in letters)


def _is_dormant(row: Any) -> bool:
    return row.schedule_type == ScheduleType.DORMANT_DEPENDENT


def _manifest_entry(row: Any, letter: Any, now: datetime) -> NewEntry:
    """An entry with the manifest's current input; a dormant manifest has its input in the dead letter.

    A retired manifest runs with the dead letter's train and input.
    """
    entry = entry_from_row(row, Origin.REQUEUE, dead_letter_id=letter.id, now=now)
    if row.retired_at is not None:
        return entry._replace(train=letter.train, input=letter.input)
    return entry._replace(input=letter.input) if _is_dormant(row) else entry


def _add_unique(connection: Connection, entries: Iterable[NewEntry], now: datetime) -> None:
    """Insert entries with a unique key; if another job has the key, its entry gets the dead letter.

    Sorted by key, so that two concurrent requeues do not deadlock.
    """
    for entry in sorted(entries, key=lambda entry: (entry.unique_key, entry.train)):
        found = work_queue.add_or_find(connection, entry, now=now)
        if found.external_id != entry.external_id and entry.dead_letter_id is not None:
            dead_letters.attach(connection, entry.dead_letter_id, found.id)


def _letter_entry(letter: Any, group_priority: int) -> NewEntry:
    """An entry for a job without a manifest; the dead letter has all its columns."""
    return NewEntry(
        external_id=new_external_id(),
        train=letter.train,
        origin=Origin.REQUEUE,
        input=letter.input,
        priority=letter.priority,
        group_id=letter.group_id,
        group_priority=group_priority,
        retry=letter.retry,
        timeout_seconds=letter.timeout_seconds,
        dead_letter_id=letter.id,
        unique_key=letter.unique_key,
    )


@dataclass(frozen=True, slots=True)
class PurgedLetters:
    """How many dead letters were deleted."""

    letters: int


@dataclass(frozen=True, slots=True)
class PurgedAudit:
    """How many dead letters and audit entries were deleted."""

    letters: int
    audit_entries: int


@dataclass(frozen=True, slots=True)
class DeadLetterCleanupResult:
    """How much one cycle deleted."""

    letters: int
    audit_entries: int
    sessions: int


@junction
def purge_resolved_dead_letters(connection: Connection, settings: Settings, now: datetime) -> PurgedLetters:
    """Delete resolved dead letters past their retention; one that awaits an operator is never deleted."""
    if not settings.auto_purge_dead_letters:
        return PurgedLetters(0)
    before = now - settings.dead_letter_retention_period
    return PurgedLetters(dead_letters.purge(connection, resolved_before=before))


@junction
def delete_old_audit_entries(
    purged: PurgedLetters, connection: Connection, settings: Settings, now: datetime
) -> PurgedAudit:
    """Delete audit entries past their retention, unless they are kept forever."""
    retention = settings.audit_retention_period
    entries = 0 if retention is None else audit.purge(connection, before=now - retention)
    return PurgedAudit(purged.letters, entries)


@junction
def delete_expired_sessions(
    purged: PurgedAudit, connection: Connection, now: datetime
) -> DeadLetterCleanupResult:
    """Delete expired sessions of the dashboard: they contain users' addresses."""
    return DeadLetterCleanupResult(
        purged.letters, purged.audit_entries, web_sessions.purge(connection, now=now)
    )


dead_letter_cleanup = train(
    "trax.dead_letter_cleanup",
    purge_resolved_dead_letters >> delete_old_audit_entries >> delete_expired_sessions,
    extra=(Settings, datetime),
    exclude_from_max_active_jobs=True,
)


def clean_dead_letters(connection: Connection, store: Store, settings: Settings) -> int:
    """Run one cycle; returns how many dead letters it deleted."""
    dialect.lift_limits(connection)
    now = store.now(connection)
    cleaned = dead_letter_cleanup.run_blocking(connection, extra={Settings: settings, datetime: now})
    workers.purge_identities(connection)
    if cleaned.letters or cleaned.audit_entries or cleaned.sessions:
        record_cycle(connection, dead_letter_cleanup, now=now)
    return cleaned.letters
