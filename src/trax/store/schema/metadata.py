"""Every attempt, and what it logged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Boolean, Column, Float, Integer, SmallInteger, false

from trax.records.states import LogLevel, State
from trax.store.schema.define import BUSY_TABLE, identity
from trax.store.types import BigId, JsonText, Utc, Words

if TYPE_CHECKING:
    from sqlalchemy import Table

    from trax.store.schema.define import Definer

ACTIVE = "state IN ('pending', 'in_progress')"
COUNTED = f"{ACTIVE} AND NOT exempt"
"""What occupies a place under the limits."""
OUTBOX = "state = 'pending' AND submitted_at IS NULL AND submitter <> 'local'"
"""What is still to be handed over."""


def metadata(define: Definer) -> Table:
    table = define.table(
        "metadata",
        identity(),
        Column("external_id", Words, nullable=False),
        Column("train", Words, nullable=False),
        Column("state", Words, nullable=False),
        Column("manifest_id", BigId, define.to("manifest")),
        Column("group_id", BigId),
        Column("parent_id", BigId, define.to("metadata", ondelete="SET NULL")),
        Column("priority", SmallInteger, nullable=False, server_default="0"),
        Column("attempt", Integer, nullable=False, server_default="1"),
        Column("input", JsonText),
        Column("output", JsonText),
        Column("created_at", Utc, nullable=False),
        Column("scheduled_for", Utc),
        Column("submitted_at", Utc),
        Column("handing_over_until", Utc),
        Column("started_at", Utc),
        Column("ended_at", Utc),
        Column("timeout_seconds", Float),
        Column("submitter", Words),
        Column("worker_id", BigId),
        Column("host", Words),
        Column("exempt", Boolean, nullable=False, server_default=false()),
        Column("cancel_requested", Boolean, nullable=False, server_default=false()),
        Column("cancel_reason", Words),
        Column("current_junction", Words),
        Column("junction_started_at", Utc),
        Column("progress", Float),
        Column("progress_message", Words),
        Column("junctions", JsonText),
        Column("failure_junction", Words),
        Column("failure_exception", Words),
        Column("failure_reason", Words),
        Column("stack_trace", Words),
        define.one_of("state", State),
        define.check("priority_range", "priority BETWEEN 0 AND 31"),
        define.check("attempt_range", "attempt >= 1"),
        define.check("progress_range", "progress BETWEEN 0 AND 1"),
        define.check("ended_when_terminal", "(state IN ('pending', 'in_progress')) = (ended_at IS NULL)"),
        define.check(
            "started_when_run", "state IN ('pending', 'failed', 'cancelled') OR started_at IS NOT NULL"
        ),
        storage=BUSY_TABLE,
    )
    column = table.c
    define.index("metadata_active_idx", column.group_id, where=COUNTED)
    define.index(
        "metadata_claim_idx", column.submitter, column.priority.desc(), column.id, where="state = 'pending'"
    )
    define.index("metadata_outbox_idx", column.submitter, column.priority.desc(), column.id, where=OUTBOX)
    define.index("metadata_running_idx", column.worker_id, where="state = 'in_progress'")
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
        Column("metadata_id", BigId, define.to("metadata", ondelete="CASCADE")),
        Column("created_at", Utc, nullable=False),
        Column("level", Words, nullable=False),
        Column("logger", Words, nullable=False),
        Column("message", Words, nullable=False),
        Column("exception", Words),
        Column("stack_trace", Words),
        define.one_of("level", LogLevel),
    )
    define.index("log_metadata_idx", table.c.metadata_id, table.c.id)
    return table
