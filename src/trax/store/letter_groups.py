"""Dead letters that wait, by what went wrong: a thousand letters are most often one or two troubles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import func, select

from trax.records.dead_letter import DeadLetterGroup
from trax.records.states import DeadLetterStatus
from trax.store import dead_letters
from trax.store.schema import tables
from trax.store.types import word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

LOOKED_AT: Final = 50_000
"""How many waiting letters are sorted into groups, the newest first; there is hardly ever a thousand."""


def listed(connection: Connection, *, limit: int = 50, brief: bool = False) -> list[DeadLetterGroup]:
    """The kinds of failure that letters wait for, the most frequent first."""
    rows = _counted(connection, limit)
    wanted = [row.last_id for row in rows] + [row.first_id for row in rows]
    letters = dead_letters.of_ids(connection, wanted, brief=brief)
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


def _counted(connection: Connection, limit: int) -> Sequence[Any]:
    letter = tables(connection).dead_letter
    waiting = (
        select(letter.c.id, letter.c.fingerprint)
        .where(letter.c.status == word(DeadLetterStatus.AWAITING_INTERVENTION))
        .order_by(letter.c.id.desc())
        .limit(LOOKED_AT)
        .subquery()
    )
    letters, last = func.count().label("letters"), func.max(waiting.c.id).label("last_id")
    query = (
        select(waiting.c.fingerprint, letters, func.min(waiting.c.id).label("first_id"), last)
        .group_by(waiting.c.fingerprint)
        .order_by(letters.desc(), last.desc())
        .limit(limit)
    )
    return connection.execute(query).all()
