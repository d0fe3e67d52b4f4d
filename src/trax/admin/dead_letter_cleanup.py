"""The DeadLetterCleanup: forgets what a person dealt with long ago."""

from __future__ import annotations

from datetime import datetime

from trax.admin.recording import leave_record
from trax.settings import Settings
from trax.store import Connection, Store, dead_letters
from trax.train import junction, train


@junction
def purge_resolved_dead_letters(connection: Connection, settings: Settings, now: datetime) -> int:
    """Delete resolved letters past their retention; what still awaits a person is never deleted."""
    if not settings.auto_purge_dead_letters:
        return 0
    before = now - settings.dead_letter_retention_period
    return dead_letters.purge(connection, resolved_before=before)


dead_letter_cleanup = train(
    "trax.dead_letter_cleanup",
    purge_resolved_dead_letters,
    extra=(Settings, datetime),
    exclude_from_max_active_jobs=True,
)


def clean_dead_letters(connection: Connection, store: Store, settings: Settings) -> int:
    """Run one cycle; returns how many letters it deleted."""
    now = store.now(connection)
    deleted = dead_letter_cleanup.run_blocking(connection, extra={Settings: settings, datetime: now})
    if deleted:
        leave_record(connection, dead_letter_cleanup, now=now)
    return deleted
