"""Passing the gate: entries are marked dispatched, and their runs made. Under the gate lock, in one trip."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import bindparam, case, insert, select, text, update

from trax.events import Topic
from trax.records.states import QueueStatus, State
from trax.store.announcing import announce, notifications
from trax.store.claim import Claimed, held_columns
from trax.store.dialect import is_sqlite, next_id, quick_document, reserve_ids, rows_of
from trax.store.pipeline import commit_together
from trax.store.schema import tables, tables_for
from trax.store.types import SQLITE, BigId, Utc, word

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Insert, Update

    from trax.store.pipeline import Step

COPIED = (
    "external_id",
    "train",
    "input",
    "manifest_id",
    "group_id",
    "priority",
    "attempt",
    "scheduled_for",
    "timeout_seconds",
)
"""What a run takes over from its entry."""

MADE = ("metadata_id", "submitter", "exempt", "worker_id", "host")


class Admission(NamedTuple):
    """An entry that is let through: who gets it, and whether it occupies a place under the limits.

    With a worker the run begins at once, held by that worker on its host; without, it is pending.
    """

    entry_id: int
    submitter: str
    exempt: bool = False
    worker_id: int | None = None
    host: str | None = None
    answers_letter: bool = False


class Admitted(NamedTuple):
    """The runs that were made, in order, and those of them that began at once."""

    metadata_ids: list[int]
    held: list[Claimed]


def admit(connection: Connection, admissions: Sequence[Admission], *, now: datetime) -> Admitted:
    """Mark the entries dispatched, make their runs, and commit.

    Ids rise in the order of admission, since that is the order in which workers take what is equally urgent.
    """
    if not admissions:
        return Admitted([], [])
    dialect = connection.dialect.name
    if any(one.worker_id is None for one in admissions):
        announce(connection, Topic.PENDING)
    given = {"rows": quick_document(dialect, _rows(connection, admissions)), "now": now}
    marking: list[Step] = [(_mark(dialect), given)] if is_sqlite(connection) else []
    answering: list[Step] = [(_answer_letters(dialect), given)] if _any_answers(admissions) else []
    notifying = notifications(connection)
    results = commit_together(connection, *marking, (_make(dialect), given), *answering, *notifying)
    made = sorted(results[len(marking)])
    return Admitted(
        metadata_ids=[row[0] for row in made],
        held=[Claimed._make(row[:-1]) for row in made if row[-1] is not None],
    )


def _any_answers(admissions: Sequence[Admission]) -> bool:
    return any(one.answers_letter for one in admissions)


def _rows(connection: Connection, admissions: Sequence[Admission]) -> list[dict[str, Any]]:
    rows = [
        {
            "id": one.entry_id,
            "place": place,
            "submitter": one.submitter,
            "exempt": one.exempt,
            "worker_id": one.worker_id,
            "host": one.host,
        }
        for place, one in enumerate(admissions)
    ]
    if is_sqlite(connection):
        ids = reserve_ids(connection, tables(connection).metadata, len(rows))
        for row, metadata_id in zip(rows, ids, strict=True):
            row["metadata_id"] = metadata_id
    return rows


def _given(dialect: str) -> Any:
    """The admissions with the ids of their runs; PostgreSQL counts those up in the order of admission."""
    t = tables_for(dialect)
    kinds: dict[str, Any] = {"id": BigId, "place": BigId, "worker_id": BigId}
    kinds |= {name: t.metadata.c[name].type for name in ("submitter", "exempt", "host")}
    if dialect == SQLITE:
        return rows_of(dialect, "rows", kinds | {"metadata_id": BigId})
    rows = rows_of(dialect, "rows", kinds)
    in_order = select(rows).order_by(rows.c.place).subquery("in_order")
    return select(in_order, next_id(t.metadata).label("metadata_id")).cte("given")


def _marking(dialect: str, given: Any) -> Any:
    queue = tables_for(dialect).work_queue
    return (
        update(queue)
        .where(queue.c.id == given.c.id, text("status = 'queued'"))
        .values(
            status=word(QueueStatus.DISPATCHED),
            metadata_id=given.c.metadata_id,
            dispatched_at=bindparam("now", type_=Utc),
        )
    )


@cache
def _mark(dialect: str) -> Update:
    return _marking(dialect, _given(dialect))


def _marked(dialect: str) -> Any:
    """The entries that were marked, beside what was said about them. PostgreSQL marks them right here."""
    queue, given = tables_for(dialect).work_queue, _given(dialect)
    wanted: list[Any] = [*(queue.c[name] for name in COPIED), *(given.c[name] for name in MADE)]
    if dialect != SQLITE:
        return _marking(dialect, given).returning(*wanted).cte("marked")
    both = select(*wanted).join_from(queue, given, given.c.id == queue.c.id)
    return both.where(queue.c.metadata_id == given.c.metadata_id).subquery("marked")


@cache
def _make(dialect: str) -> Insert:
    metadata, marked = tables_for(dialect).metadata, _marked(dialect)
    now = bindparam("now", type_=Utc)
    is_held = marked.c.worker_id.is_not(None)
    columns: dict[str, Any] = {name: marked.c[name] for name in (*COPIED, *MADE[1:])} | {
        "id": marked.c.metadata_id,
        "state": case((is_held, word(State.IN_PROGRESS)), else_=word(State.PENDING)),
        "created_at": now,
        "started_at": case((is_held, now)),
    }
    rows = select(*columns.values()).order_by(marked.c.metadata_id)
    made = insert(metadata).from_select(list(columns), rows)
    return made.returning(*held_columns(dialect), metadata.c.worker_id)


@cache
def _answer_letters(dialect: str) -> Update:
    """Note on a dead letter that was requeued which run it led to."""
    t = tables_for(dialect)
    given = rows_of(dialect, "rows", {"id": BigId})
    return (
        update(t.dead_letter)
        .where(
            t.dead_letter.c.id == t.work_queue.c.dead_letter_id,
            t.work_queue.c.id == given.c.id,
            t.work_queue.c.metadata_id.is_not(None),
        )
        .values(retry_metadata_id=t.work_queue.c.metadata_id)
    )
