"""Group awaiting dead letters by fingerprint: a thousand letters often have one or two causes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import func, select

from trax.records.dead_letter import DeadLetterGroup
from trax.records.states import DeadLetterStatus
from trax.store import dead_letters
from trax.store.schema import tables
from trax.store.types import sql_literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

MAX_LETTERS: Final = 50_000
"""How many awaiting letters are grouped, the newest first."""


def load_groups(connection: Connection, *, limit: int = 50, brief: bool = False) -> list[DeadLetterGroup]:
    """Groups of awaiting dead letters, the largest first."""
    rows = _count_by_fingerprint(connection, limit)
    ids = [row.last_id for row in rows] + [row.first_id for row in rows]
    letters = dead_letters.load_by_ids(connection, ids, brief=brief)
    return [
        DeadLetterGroup(
            fingerprint=row.fingerprint,
            train=letters[row.last_id].train,
            count=row.letters,
            first_at=letters[row.first_id].dead_lettered_at,
            last_at=letters[row.last_id].dead_lettered_at,
            sample=letters[row.last_id],
        )
        for row in rows
    ]


def _count_by_fingerprint(connection: Connection, limit: int) -> Sequence[Any]:
    letter = tables(connection).dead_letter
    awaiting = (
        select(letter.c.id, letter.c.fingerprint)
        .where(letter.c.status == sql_literal(DeadLetterStatus.AWAITING_INTERVENTION))
        .order_by(letter.c.id.desc())
        .limit(MAX_LETTERS)
        .subquery()
    )
    letters, last = func.count().label("letters"), func.max(awaiting.c.id).label("last_id")
    query = (
        select(awaiting.c.fingerprint, letters, func.min(awaiting.c.id).label("first_id"), last)
        .group_by(awaiting.c.fingerprint)
        .order_by(letters.desc(), last.desc())
        .limit(limit)
    )
    return connection.execute(query).all()
