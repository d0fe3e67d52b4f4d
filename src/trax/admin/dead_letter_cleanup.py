"""The DeadLetterCleanup: forgets what a person dealt with long ago, and what was written down about it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trax.admin.recording import leave_record
from trax.settings import Settings
from trax.store import Connection, Store, audit, dead_letters, dialect
from trax.train import junction, train


@dataclass(frozen=True, slots=True)
class Purged:
    """How many letters are gone."""

    letters: int


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How many letters and entries of the audit are gone."""

    letters: int
    audit_entries: int


@junction
def purge_resolved_dead_letters(connection: Connection, settings: Settings, now: datetime) -> Purged:
    """Delete resolved letters past their retention; what still awaits a person is never deleted."""
    if not settings.auto_purge_dead_letters:
        return Purged(0)
    before = now - settings.dead_letter_retention_period
    return Purged(dead_letters.purge(connection, resolved_before=before))


@junction
def forget_old_audit(purged: Purged, connection: Connection, settings: Settings, now: datetime) -> Forgotten:
    """Forget what operators did long ago, unless it is to be kept for ever."""
    kept_for = settings.audit_retention_period
    entries = 0 if kept_for is None else audit.purge(connection, before=now - kept_for)
    return Forgotten(purged.letters, entries)


dead_letter_cleanup = train(
    "trax.dead_letter_cleanup",
    purge_resolved_dead_letters >> forget_old_audit,
    extra=(Settings, datetime),
    exclude_from_max_active_jobs=True,
)


def clean_dead_letters(connection: Connection, store: Store, settings: Settings) -> int:
    """Run one cycle; returns how many letters it deleted."""
    dialect.lift_limits(connection)
    now = store.now(connection)
    forgotten = dead_letter_cleanup.run_blocking(connection, extra={Settings: settings, datetime: now})
    if forgotten.letters or forgotten.audit_entries:
        leave_record(connection, dead_letter_cleanup, now=now)
    return forgotten.letters
