"""The DeadLetterCleanup: forgets old letters that were dealt with, old audit entries, and old sessions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trax.admin.recording import leave_record
from trax.settings import Settings
from trax.store import Connection, Store, audit, dead_letters, dialect, web_sessions
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


@dataclass(frozen=True, slots=True)
class Cleaned:
    """How much is gone in all."""

    letters: int
    audit_entries: int
    sessions: int


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


@junction
def delete_expired_sessions(forgotten: Forgotten, connection: Connection, now: datetime) -> Cleaned:
    """Delete the sessions of the dashboard that have expired: they hold addresses of people."""
    return Cleaned(forgotten.letters, forgotten.audit_entries, web_sessions.purge(connection, now=now))


dead_letter_cleanup = train(
    "trax.dead_letter_cleanup",
    purge_resolved_dead_letters >> forget_old_audit >> delete_expired_sessions,
    extra=(Settings, datetime),
    exclude_from_max_active_jobs=True,
)


def clean_dead_letters(connection: Connection, store: Store, settings: Settings) -> int:
    """Run one cycle; returns how many letters it deleted."""
    dialect.lift_limits(connection)
    now = store.now(connection)
    cleaned = dead_letter_cleanup.run_blocking(connection, extra={Settings: settings, datetime: now})
    if cleaned.letters or cleaned.audit_entries or cleaned.sessions:
        leave_record(connection, dead_letter_cleanup, now=now)
    return cleaned.letters
