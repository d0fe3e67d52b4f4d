"""The DeadLetterCleanup: delete old resolved dead letters, old audit entries, and expired sessions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trax.admin.recording import record_cycle
from trax.settings import Settings
from trax.store import Connection, Store, audit, dead_letters, dialect, web_sessions
from trax.train import junction, train


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
    """Delete resolved dead letters past their retention; one that awaits a person is never deleted."""
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
    if cleaned.letters or cleaned.audit_entries or cleaned.sessions:
        record_cycle(connection, dead_letter_cleanup, now=now)
    return cleaned.letters
