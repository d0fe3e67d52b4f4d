"""How much ended when: sums over the history, so that nobody has to walk it.

Nothing on the path of a job writes here. A duty adds up what ended, minute by minute, once a minute is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Column, Float

from trax.records.tally import Span
from trax.store.types import BigId, Utc, Words

if TYPE_CHECKING:
    from sqlalchemy import Table

    from trax.store.schema.define import Definer


def tally(define: Definer) -> Table:
    """What ended in a minute or an hour, of each train."""
    return define.table(
        "tally",
        Column("span", Words, primary_key=True),
        Column("at", Utc, primary_key=True),
        Column("train", Words, primary_key=True),
        *_sums(),
        define.one_of("span", Span),
        clustered=True,
    )


def group_tally(define: Definer) -> Table:
    """What has ended in each group since counting began. A group that is gone leaves its row."""
    return define.table(
        "group_tally",
        Column("group_id", BigId, primary_key=True, autoincrement=False),
        *_sums(),
        Column("last_run_at", Utc, nullable=False),
    )


def _sums() -> list[Column[Any]]:
    counts = [Column(name, BigInteger, nullable=False) for name in ("completed", "failed", "cancelled")]
    return [*counts, Column("seconds", Float, nullable=False)]
