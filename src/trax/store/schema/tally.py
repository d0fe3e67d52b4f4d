"""Tables `tally` and `group_tally`: totals of ended runs, so that pages need not read the history.

Jobs never write here. A background loop adds the runs of each minute after that minute is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Column, Float

from trax.records.tally import Span
from trax.store.types import BigId, ByteOrderText, Utc

if TYPE_CHECKING:
    from sqlalchemy import Table

    from trax.store.schema.define import Definer


def tally(define: Definer) -> Table:
    """Totals per minute or hour, and train."""
    return define.table(
        "tally",
        Column("span", ByteOrderText, primary_key=True),
        Column("at", Utc, primary_key=True),
        Column("train", ByteOrderText, primary_key=True),
        *_total_columns(),
        define.one_of("span", Span),
        clustered=True,
    )


def group_tally(define: Definer) -> Table:
    """Totals per group since counting began. The row of a deleted group stays."""
    return define.table(
        "group_tally",
        Column("group_id", BigId, primary_key=True, autoincrement=False),
        *_total_columns(),
        Column("last_run_at", Utc, nullable=False),
    )


def _total_columns() -> list[Column[Any]]:
    counts = [Column(name, BigInteger, nullable=False) for name in ("completed", "failed", "cancelled")]
    return [*counts, Column("seconds", Float, nullable=False)]
