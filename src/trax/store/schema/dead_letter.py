"""Table `dead_letter`: jobs that gave up and wait for an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Column, Float, Integer, SmallInteger

from trax.records.states import DeadLetterStatus
from trax.store.schema.define import identity
from trax.store.types import BigId, ByteOrderText, JsonText, Utc

if TYPE_CHECKING:
    from sqlalchemy import Table

    from trax.store.schema.define import Definer


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
        Column("retry_metadata_id", BigId, define.foreign_key("metadata", ondelete="SET NULL")),
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
    define.index("dead_letter_retry_idx", column.retry_metadata_id, where="retry_metadata_id IS NOT NULL")
    return table
