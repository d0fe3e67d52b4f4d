"""The MetadataCleanup: delete old records of the administrative trains and of those in the settings.

One cycle deletes one batch in one short transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from trax.engine.dead_letters import dead_letter_cleanup
from trax.engine.finish import record_cycle
from trax.engine.job_dispatcher import job_dispatcher
from trax.engine.manifest_manager import manifest_manager
from trax.settings import Settings
from trax.store import Connection, Store, dialect
from trax.store.runs.cleanup import delete_ended
from trax.train import junction, train


@dataclass(frozen=True, slots=True)
class DisposableTrains:
    """The trains whose records may be deleted, with their aliases, and where the last cycle has left off."""

    trains: frozenset[str]
    resume_at: Mapping[str, datetime] = field(default_factory=dict[str, datetime])


@dataclass(frozen=True, slots=True)
class ExpiredRecords:
    """The records to delete: those of these trains that ended before that moment."""

    trains: frozenset[str]
    ended_before: datetime
    resume_at: Mapping[str, datetime]


@dataclass(frozen=True, slots=True)
class MetadataCleanupResult:
    """What one cycle deleted, by train. `run_again`: run another cycle at once, from `resume_at` on."""

    by_train: Counter[str]
    run_again: bool = False
    resume_at: Mapping[str, datetime] = field(default_factory=dict[str, datetime])

    @property
    def total(self) -> int:
        return self.by_train.total()

    @property
    def has_changes(self) -> bool:
        """Whether it deleted records of other trains. If not, it writes none: each would cause another."""
        return any(name != metadata_cleanup.name for name in self.by_train)


@junction
def load_cleanup_rules(disposable: DisposableTrains, settings: Settings, now: datetime) -> ExpiredRecords:
    """The trains and the moment before which a run must have ended (not begun) to be deleted."""
    return ExpiredRecords(
        disposable.trains | ADMINISTRATIVE_TRAINS,
        now - settings.metadata_cleanup_retention,
        disposable.resume_at,
    )


@junction
def delete_expired_metadata(
    expired: ExpiredRecords, connection: Connection, settings: Settings
) -> MetadataCleanupResult:
    size = settings.metadata_cleanup_batch_size
    deleted = delete_ended(
        connection,
        trains=expired.trains,
        ended_before=expired.ended_before,
        limit=size,
        resume_at=expired.resume_at,
    )
    is_full = deleted.by_train.total() == size
    return MetadataCleanupResult(deleted.by_train, is_full, deleted.resume_at if is_full else {})


metadata_cleanup = train(
    "trax.metadata_cleanup",
    load_cleanup_rules >> delete_expired_metadata,
    extra=(Connection, Settings, datetime),
    exclude_from_max_active_jobs=True,
)

ADMINISTRATIVE_TRAINS: Final = frozenset(
    each.name for each in (manifest_manager, job_dispatcher, dead_letter_cleanup, metadata_cleanup)
)


def clean_metadata(
    connection: Connection, store: Store, settings: Settings, disposable: DisposableTrains
) -> MetadataCleanupResult:
    """Run one cycle; it deletes nothing if cleanup is disabled or another server holds the lock."""
    if not settings.metadata_cleanup_enabled or not dialect.try_cleanup_lock(connection):
        return MetadataCleanupResult(Counter())
    dialect.lift_limits(connection)
    now = store.now(connection)
    extra = {Connection: connection, Settings: settings, datetime: now}
    cleaned = metadata_cleanup.run_blocking(disposable, extra=extra)
    if cleaned.has_changes:
        record_cycle(connection, metadata_cleanup, now=now)
    return cleaned
