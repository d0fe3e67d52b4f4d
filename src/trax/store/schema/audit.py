"""Table `audit`: operator actions, written in the transaction of the action."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Column, Integer

from trax.records.audit import Via
from trax.store.schema.define import identity
from trax.store.types import BigId, ByteOrderText, JsonText, Utc

if TYPE_CHECKING:
    from sqlalchemy import Table

    from trax.store.schema.define import Definer


def audit(define: Definer) -> Table:
    table = define.table(
        "audit",
        identity(),
        Column("at", Utc, nullable=False),
        Column("actor", ByteOrderText, nullable=False),
        Column("via", ByteOrderText, nullable=False),
        Column("action", ByteOrderText, nullable=False),
        Column("noun", ByteOrderText, nullable=False),
        Column("ids", JsonText, nullable=False),
        Column("targets", Integer, nullable=False),
        Column("before", JsonText),
        Column("after", JsonText),
        Column("restores", JsonText),
        Column("expects", JsonText),
        Column("reason", ByteOrderText),
        # No foreign keys: an old entry may be deleted before the one that undid it.
        Column("undoes", BigId),
        Column("undone_by", BigId),
        define.one_of("via", Via),
        define.check("targets_range", "targets >= 0"),
    )
    column = table.c
    define.index("audit_actor_idx", column.actor, column.id)
    define.index("audit_action_idx", column.action, column.id)
    define.index("audit_noun_idx", column.noun, column.id)
    return table
