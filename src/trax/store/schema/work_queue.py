"""Table `work_queue`: enqueued jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import Boolean, Column, Float, Integer, SmallInteger, func

from trax.records.states import Origin, QueueStatus
from trax.store.schema.define import BUSY_TABLE, identity
from trax.store.schema.metadata import ACTIVE
from trax.store.types import POSTGRESQL, SQLITE, BigId, ByteOrderText, JsonText, TransactionId, Utc

if TYPE_CHECKING:
    from sqlalchemy import Table

    from trax.store.schema.define import Definer

QUEUED = "status = 'queued'"
READY = f"{QUEUED} AND ready"
DELAYED = f"{QUEUED} AND NOT ready AND parked IS NULL"
NOT_READY = f"{QUEUED} AND NOT ready AND group_id IS NOT NULL"
"""Delayed and parked entries of groups."""
PARKED = f"{QUEUED} AND parked IS NOT NULL"
"""Entries that no live worker can run; they are never ready."""
SCHEDULED = f"{QUEUED} AND origin IN ('schedule', 'retry')"
BLOCKS_SCHEDULED = f"{QUEUED} AND origin IN ('schedule', 'retry', 'requeue')"
"""Entries that block the next scheduled entry of their manifest."""
KEYED = "unique_key IS NOT NULL"
"""Entries with a unique key, in any status. The next enqueue with it releases it if the job has ended."""


# A worker that dies may have begun a run that it claimed ahead of a free slot, without a record of it. So
# only entries that have another attempt are claimed ahead, and none that a lost worker has claimed before.
_LAST_ATTEMPT = {
    POSTGRESQL: """
        CASE WHEN retry IS NULL THEN 1
             WHEN retry ->> 'max_retries' ~ '^[0-9]{1,9}$' THEN CAST(retry ->> 'max_retries' AS bigint) - 1
             ELSE 0 END""",
    SQLITE: """
        CASE WHEN retry IS NULL THEN 1
             WHEN json_valid(retry) THEN coalesce(CAST(retry ->> 'max_retries' AS integer), 0) - 1
             ELSE 0 END""",
}
MAY_WAIT = {
    dialect: f"(manifest_id IS NULL AND dispatch_attempts = 0 AND attempt <= {last})"
    for dialect, last in _LAST_ATTEMPT.items()
}
"""Whether a worker may claim the entry ahead of a free slot; by default: at its first attempt."""

WRITTEN_IN = "written_in"

_FUNCTION: Final = (
    "CREATE FUNCTION trax.set_written_in() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER "
    "SET search_path = pg_catalog, pg_temp AS $$BEGIN UPDATE trax.work_queue "
    "SET written_in = pg_current_xact_id() WHERE id = NEW.id; RETURN NULL; END$$"
)
_TRIGGER: Final = (
    "CREATE TRIGGER work_queue_written_in AFTER UPDATE ON trax.work_queue FOR EACH ROW "
    "WHEN (NEW.status = 'queued' AND NEW.ready AND NEW.written_in IS DISTINCT FROM pg_current_xact_id()) "
    "EXECUTE FUNCTION trax.set_written_in()"
)
"""Writes an entry again that is ready after an UPDATE which did not set `written_in`: by hand, not by Trax.

AFTER, and not BEFORE: a BEFORE trigger locks each row in a step of its own, also those that a dispatch
marks. An INSERT has the default of the column; a trigger would only cost time there.
"""

_RELEASE_KEY: Final = (
    "CREATE FUNCTION trax.release_key(entry_id bigint, key text) RETURNS void LANGUAGE plpgsql "
    "SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$BEGIN UPDATE trax.work_queue AS entry "
    "SET unique_key = NULL, former_key = unique_key WHERE id = entry_id AND unique_key = key AND "
    "(status = 'cancelled' OR status = 'dispatched' AND NOT EXISTS (SELECT FROM trax.metadata AS run "
    "WHERE run.id = entry.metadata_id AND " + ACTIVE + ")); END$$"
)
_ONLY_BY_GRANT: Final = "REVOKE EXECUTE ON FUNCTION trax.release_key(bigint, text) FROM PUBLIC"
"""Releases the unique key of a job that has ended, with the rights of the owner.

Who may only enqueue needs no UPDATE then, which would also allow to lock the entries of others.
"""


def work_queue(define: Definer) -> Table:
    table = define.table(
        "work_queue",
        identity(),
        # Columns of fixed width come first, and those that a dispatch writes come last: see `metadata`.
        Column("group_id", BigId),
        Column("manifest_id", BigId),
        Column("dead_letter_id", BigId),
        Column("created_at", Utc, nullable=False),
        Column("scheduled_at", Utc),
        Column("scheduled_for", Utc),
        Column("parked_at", Utc),
        Column("timeout_seconds", Float),
        *_transaction_column(define),
        Column("attempt", Integer, nullable=False, server_default="1"),
        Column("dispatch_attempts", Integer, nullable=False, server_default="0"),
        Column("priority", SmallInteger, nullable=False, server_default="0"),
        Column("group_priority", SmallInteger, nullable=False, server_default="0"),
        Column("ready", Boolean, nullable=False),
        Column("external_id", ByteOrderText, nullable=False),
        Column("train", ByteOrderText, nullable=False),
        Column("input", JsonText),
        Column("origin", ByteOrderText, nullable=False),
        Column("parked", ByteOrderText),
        Column("unique_key", ByteOrderText),
        # The key that another job took over after this one ended; a rerun requests it again.
        Column("former_key", ByteOrderText),
        Column("retry", JsonText),
        Column("status", ByteOrderText, nullable=False),
        Column("metadata_id", BigId),
        Column("dispatched_at", Utc),
        define.one_of("status", QueueStatus),
        define.one_of("origin", Origin),
        define.check("priority_range", "priority BETWEEN 0 AND 31"),
        define.check("group_priority_range", "group_priority BETWEEN 0 AND 31"),
        define.check("attempt_range", "attempt >= 1"),
        define.check("dispatch_attempts_range", "dispatch_attempts >= 0"),
        define.check("delayed_has_moment", "ready OR scheduled_at IS NOT NULL OR parked IS NOT NULL"),
        define.check("parked_is_not_ready", "parked IS NULL OR NOT ready"),
        define.check("parked_has_moment", "(parked IS NULL) = (parked_at IS NULL)"),
        define.check("dispatched_has_moment", "(status = 'dispatched') = (dispatched_at IS NOT NULL)"),
        # Who may only enqueue writes these columns, and the dispatcher reads them for everybody.
        define.names_within("train", "external_id", "unique_key", "former_key"),
        define.moments_within("created_at", "scheduled_at", "scheduled_for", "parked_at", "dispatched_at"),
        define.seconds_within("timeout_seconds"),
        storage=BUSY_TABLE,
    )
    column = table.c
    in_order = (column.priority.desc(), column.created_at, column.id)
    define.index("work_queue_ready_idx", column.group_priority.desc(), *in_order, where=READY)
    define.index("work_queue_ready_in_group_idx", column.group_id, *in_order, where=READY)
    if WRITTEN_IN in column:
        # The last part excludes it from queries without `written_in`, which need the order of another index.
        is_written = f"{READY} AND {WRITTEN_IN} IS NOT NULL"
        define.index("work_queue_written_in_idx", column[WRITTEN_IN], where=is_written)
    # For searches only: runs have the id of their entry. External ids ascend with time, so that a BRIN index
    # finds them; its cost per entry is very small.
    define.index("work_queue_external_id_idx", column.external_id, using="brin")
    define.index("work_queue_delayed_idx", column.scheduled_at, where=DELAYED)
    define.index("work_queue_not_ready_in_group_idx", column.group_id, where=NOT_READY)
    define.index("work_queue_parked_idx", column.parked, column.parked_at, where=PARKED)
    define.index("work_queue_parked_at_idx", column.parked_at, where=PARKED)
    define.index("work_queue_one_scheduled_idx", column.manifest_id, where=SCHEDULED, unique=True)
    define.index(
        "work_queue_queued_of_manifest_idx", column.manifest_id, where=f"{QUEUED} AND manifest_id IS NOT NULL"
    )
    define.index("work_queue_unique_key_idx", column.unique_key, column.train, where=KEYED, unique=True)
    define.index("work_queue_manifest_idx", column.manifest_id, column.id, where="manifest_id IS NOT NULL")
    define.index("work_queue_cancelled_idx", column.id, where="status = 'cancelled'")
    define.index("work_queue_dead_letter_idx", column.dead_letter_id, where="dead_letter_id IS NOT NULL")
    if WRITTEN_IN in column:
        define.statement(table, _FUNCTION)
        define.statement(table, _TRIGGER)
        define.statement(table, _RELEASE_KEY)
        define.statement(table, _ONLY_BY_GRANT)
    return table


def _transaction_column(define: Definer) -> list[Column[str]]:
    """The transaction that last wrote the row, set by every INSERT and UPDATE; `gate_memory` needs it.

    Ours name it; `_TRIGGER` sets it for an UPDATE by hand. On SQLite there is no such column.
    """
    if define.dialect == SQLITE:
        return []
    current = func.pg_current_xact_id()
    return [Column(WRITTEN_IN, TransactionId, server_default=current, onupdate=current)]
