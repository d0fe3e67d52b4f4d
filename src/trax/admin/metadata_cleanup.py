"""The MetadataCleanup: deletes the records of trains nobody needs the history of, batch after batch.

One cycle is one batch in one short transaction. Its own trains are among them: whoever runs every few
seconds would fill the tables otherwise.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from trax.admin.dead_letter_cleanup import dead_letter_cleanup
from trax.admin.job_dispatcher import job_dispatcher
from trax.admin.manifest_manager import manifest_manager
from trax.admin.recording import leave_record
from trax.settings import Settings
from trax.store import Connection, Store, dialect
from trax.store.metadata_cleanup import delete_ended
from trax.train import junction, train


@dataclass(frozen=True, slots=True)
class Disposable:
    """The trains whose records may go, by every name they are known under."""

    trains: frozenset[str]


@dataclass(frozen=True, slots=True)
class Expired:
    """What may go: these trains' records, if they ended before that moment."""

    trains: frozenset[str]
    ended_before: datetime


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What one cycle deleted, by train. `more` asks for another one at once."""

    by_train: Counter[str]
    more: bool = False

    @property
    def deleted(self) -> int:
        return self.by_train.total()

    @property
    def changed(self) -> bool:
        """Whether it did more than to remove its own traces: a record of that would never end."""
        return any(name != metadata_cleanup.name for name in self.by_train)


@junction
def load_cleanup_rules(disposable: Disposable, settings: Settings, now: datetime) -> Expired:
    """Old is what ended long ago, not what began long ago: the record of a long run is kept as long."""
    return Expired(disposable.trains | ADMINISTRATIVE, now - settings.metadata_cleanup_retention)


@junction
def delete_expired_metadata(expired: Expired, connection: Connection, settings: Settings) -> Cleaned:
    size = settings.metadata_cleanup_batch_size
    by_train = delete_ended(connection, trains=expired.trains, ended_before=expired.ended_before, limit=size)
    return Cleaned(by_train, more=by_train.total() == size)


metadata_cleanup = train(
    "trax.metadata_cleanup",
    load_cleanup_rules >> delete_expired_metadata,
    extra=(Connection, Settings, datetime),
    exclude_from_max_active_jobs=True,
)

ADMINISTRATIVE: Final = frozenset(
    each.name for each in (manifest_manager, job_dispatcher, dead_letter_cleanup, metadata_cleanup)
)


def clean_metadata(
    connection: Connection, store: Store, settings: Settings, disposable: Disposable
) -> Cleaned:
    """Run one cycle, unless it is switched off or another server is at it: then nothing is deleted."""
    if not settings.metadata_cleanup_enabled or not dialect.try_cleanup_lock(connection):
        return Cleaned(Counter())
    dialect.lift_limits(connection)
    now = store.now(connection)
    extra = {Connection: connection, Settings: settings, datetime: now}
    cleaned = metadata_cleanup.run_blocking(disposable, extra=extra)
    if cleaned.changed:
        leave_record(connection, metadata_cleanup, now=now)
    return cleaned
