"""Tables `metadata` (runs), `log` (their log lines) and `dead_letter` (jobs that gave up)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Boolean, Column, Float, Integer, SmallInteger, false

from trax.records.states import DeadLetterStatus, LogLevel, State
from trax.store.schema.define import BUSY_TABLE, identity
from trax.store.types import BigId, ByteOrderText, JsonText, Utc

if TYPE_CHECKING:
    from sqlalchemy import Table

    from trax.store.schema.define import Definer

ACTIVE = "state IN ('pending', 'in_progress')"
UNDER_LIMITS = f"{ACTIVE} AND NOT exempt"
"""Runs that count against the limits."""
PENDING = "state = 'pending'"
RUNNING = "state = 'in_progress'"
DIRECT = f"{RUNNING} AND submitter IS NULL"
"""Runs of `app.run`, which were not admitted at the gate."""
OUTBOX = "state = 'pending' AND submitted_at IS NULL AND submitter <> 'local'"
"""Runs that must still be handed to a submitter."""


def metadata(define: Definer) -> Table:
    table = define.table(
        "metadata",
        identity(),
        # Columns of fixed width come first, and those that the end of a run writes come last: PostgreSQL pads
        # less, and logs only the part of a row between the first and the last change.
        Column("entry_id", BigId),
        Column("manifest_id", BigId, define.foreign_key("manifest")),
        Column("group_id", BigId),
        Column("parent_id", BigId),
        Column("worker_id", BigId),
        Column("created_at", Utc, nullable=False),
        Column("scheduled_for", Utc),
        Column("submitted_at", Utc),
        Column("handing_over_until", Utc),
        Column("timeout_seconds", Float),
        Column("attempt", Integer, nullable=False, server_default="1"),
        Column("priority", SmallInteger, nullable=False, server_default="0"),
        Column("exempt", Boolean, nullable=False, server_default=false()),
        Column("cancel_requested", Boolean, nullable=False, server_default=false()),
        Column("external_id", ByteOrderText, nullable=False),
        Column("train", ByteOrderText, nullable=False),
        Column("input", JsonText),
        Column("submitter", ByteOrderText),
        Column("host", ByteOrderText),
        Column("cancel_reason", ByteOrderText),
        Column("progress", Float),
        Column("progress_message", ByteOrderText),
        Column("state", ByteOrderText, nullable=False),
        # When its code began. Null while it is pending, or claimed ahead of a free slot.
        Column("started_at", Utc),
        Column("ended_at", Utc),
        Column("output", JsonText),
        Column("current_junction", ByteOrderText),
        Column("junction_started_at", Utc),
        Column("junctions", JsonText),
        Column("failure_junction", ByteOrderText),
        Column("failure_exception", ByteOrderText),
        Column("failure_reason", ByteOrderText),
        Column("stack_trace", ByteOrderText),
        define.one_of("state", State),
        define.check("priority_range", "priority BETWEEN 0 AND 31"),
        define.check("attempt_range", "attempt >= 1"),
        define.check("progress_range", "progress BETWEEN 0 AND 1"),
        define.check("ended_when_terminal", "(state IN ('pending', 'in_progress')) = (ended_at IS NULL)"),
        define.check("started_when_completed", "state <> 'completed' OR started_at IS NOT NULL"),
        storage=BUSY_TABLE,
    )
    column = table.c
    define.index("metadata_claim_idx", column.submitter, column.priority.desc(), column.id, where=PENDING)
    define.index("metadata_outbox_idx", column.submitter, column.priority.desc(), column.id, where=OUTBOX)
    define.index("metadata_running_idx", column.worker_id, where=RUNNING)
    define.index("metadata_direct_idx", column.id, where=DIRECT)
    define.index("metadata_failed_idx", column.id, where="state = 'failed'")
    define.index("metadata_cancelled_idx", column.id, where="state = 'cancelled'")
    define.index("metadata_ended_idx", column.train, column.ended_at, where="ended_at IS NOT NULL")
    define.index("metadata_manifest_idx", column.manifest_id, column.id, where="manifest_id IS NOT NULL")
    define.index(
        "metadata_active_of_manifest_idx", column.manifest_id, where=f"{ACTIVE} AND manifest_id IS NOT NULL"
    )
    define.index("metadata_parent_idx", column.parent_id, where="parent_id IS NOT NULL")
    return table


def log(define: Definer) -> Table:
    table = define.table(
        "log",
        identity(),
        Column("metadata_id", BigId),
        Column("created_at", Utc, nullable=False),
        Column("level", ByteOrderText, nullable=False),
        Column("logger", ByteOrderText, nullable=False),
        Column("message", ByteOrderText, nullable=False),
        Column("exception", ByteOrderText),
        Column("stack_trace", ByteOrderText),
        define.one_of("level", LogLevel),
    )
    define.index("log_metadata_idx", table.c.metadata_id, table.c.id)
    return table


def dead_letter(define: Definer) -> Table:
    table = define.table(
        "dead_letter",
        identity(),
        Column("manifest_id", BigId, define.foreign_key("manifest")),
        Column("train", ByteOrderText, nullable=False),
        Column("group_id", BigId),
        Column("priority", SmallInteger, nullable=False, server_default="0"),
        Column("input", JsonText),
        Column("retry", JsonText),
        Column("timeout_seconds", Float),
        Column("unique_key", ByteOrderText),
        Column("status", ByteOrderText, nullable=False),
        Column("reason", ByteOrderText, nullable=False),
        Column("retry_count", Integer, nullable=False),
        # No foreign key: the dead letter outlives the run, and has its own failure columns.
        Column("last_metadata_id", BigId),
        Column("failure_exception", ByteOrderText),
        Column("failure_junction", ByteOrderText),
        Column("failure_reason", ByteOrderText),
        Column("fingerprint", ByteOrderText, nullable=False, server_default=""),
        Column("dead_lettered_at", Utc, nullable=False),
        Column("resolved_at", Utc),
        Column("note", ByteOrderText),
        Column("retry_metadata_id", BigId),
        define.one_of("status", DeadLetterStatus),
        define.check(
            "resolved_when_not_awaiting", "(status = 'awaiting_intervention') = (resolved_at IS NULL)"
        ),
    )
    column = table.c
    define.index(
        "dead_letter_one_awaiting_idx",
        column.manifest_id,
        where="status = 'awaiting_intervention' AND manifest_id IS NOT NULL",
        unique=True,
    )
    define.index("dead_letter_awaiting_idx", column.id, where="status = 'awaiting_intervention'")
    define.index(
        "dead_letter_fingerprint_idx", column.fingerprint, column.id, where="status = 'awaiting_intervention'"
    )
    define.index("dead_letter_manifest_idx", column.manifest_id, where="manifest_id IS NOT NULL")
    define.index("dead_letter_group_idx", column.group_id, where="group_id IS NOT NULL")
    define.index("dead_letter_retry_idx", column.retry_metadata_id, where="retry_metadata_id IS NOT NULL")
    return table
