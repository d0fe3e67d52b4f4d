"""Admit entries under the gate lock: mark them dispatched, and insert their runs."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import (
    Boolean,
    Float,
    SmallInteger,
    Text,
    bindparam,
    case,
    cast,
    column,
    func,
    insert,
    literal_column,
    select,
    text,
    update,
)

from trax.events import Topic
from trax.records.states import QueueStatus, State
from trax.store.announce import announce, notifications
from trax.store.dialect import (
    id_array,
    id_document,
    ids_of,
    is_sqlite,
    next_id,
    quick_document,
    reserve_ids,
    rows_of,
)
from trax.store.pipeline import commit_together
from trax.store.runs.claim import Claimed, claim_columns
from trax.store.schema import tables_for
from trax.store.schema.work_queue import WRITTEN_IN
from trax.store.types import SQLITE, BigId, Utc, sql_literal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Insert, Update

    from trax.store.pipeline import BoundStatement


COPIED_COLUMNS = (
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
"""Columns copied from the entry to its run."""

KIND_COLUMNS = ("submitter", "exempt", "worker_id", "host")
"""Columns of a run that come from its admission."""

_KINDS: dict[str, Any] = {
    "submitter": Text(),
    "exempt": Boolean(),
    "worker_id": BigId,
    "host": Text(),
    "starts": Boolean(),
}
"""What entries that are admitted alike have in common: these columns, and whether the run starts now."""


class Admission(NamedTuple):
    """An entry to admit: its submitter, and whether it is exempt from the limits.

    With a worker the run is claimed by that worker on its host, and starts at once or, if `starts` is false,
    when a slot becomes free; without one it is pending.
    """

    entry_id: int
    submitter: str
    exempt: bool = False
    worker_id: int | None = None
    host: str | None = None
    starts: bool = False
    from_dead_letter: bool = False


class AdmissionResult(NamedTuple):
    """The ids of the inserted runs in order, those of their entries, and the runs that a worker claimed.

    An entry that was withdrawn meanwhile has no run.
    """

    metadata_ids: list[int]
    entry_ids: list[int]
    claimed: list[Claimed]


def admit(connection: Connection, admissions: Sequence[Admission], *, now: datetime) -> AdmissionResult:
    """Mark the entries dispatched, insert their runs, and commit.

    Ids rise in the order of admission: workers claim runs of equal priority by id.
    """
    if not admissions:
        return AdmissionResult([], [], [])
    dialect = connection.dialect.name
    if any(admission.worker_id is None for admission in admissions):
        announce(connection, Topic.PENDING)
    parameters = _parameters(connection, admissions) | {"now": now}
    mark: list[BoundStatement] = [(_mark_dispatched(dialect), parameters)] if is_sqlite(connection) else []
    link_letters: list[BoundStatement] = (
        [(_link_dead_letters(dialect), parameters)] if _has_dead_letter_retry(admissions) else []
    )
    notify = notifications(connection)
    results = commit_together(connection, *mark, (_insert_runs(dialect), parameters), *link_letters, *notify)
    rows = sorted(results[len(mark)])
    return AdmissionResult(
        metadata_ids=[row[0] for row in rows],
        entry_ids=[row[-2] for row in rows],
        claimed=[Claimed(*row[:-2]) for row in rows if row[-1] is not None],
    )


def _has_dead_letter_retry(admissions: Sequence[Admission]) -> bool:
    return any(admission.from_dead_letter for admission in admissions)


def _parameters(connection: Connection, admissions: Sequence[Admission]) -> dict[str, Any]:
    """The parameters of `_admission_rows`, and the ids of the entries.

    On PostgreSQL these are arrays: what entries have in common is sent once for each kind of admission.
    """
    ids = id_document(admission.entry_id for admission in admissions)
    if is_sqlite(connection):
        run_ids = reserve_ids(connection, tables_for(SQLITE).metadata, len(admissions))
        rows = [
            {"id": entry_id, "metadata_id": run_id, **dict(zip(_KINDS, kind, strict=True))}
            for run_id, (entry_id, *kind, _) in zip(run_ids, admissions, strict=True)
        ]
        return {"ids": ids, "rows": quick_document(SQLITE, rows)}
    kinds: dict[tuple[Any, ...], int] = {}
    numbers = [kinds.setdefault(admission[1:-1], len(kinds) + 1) for admission in admissions]
    columns = zip(*kinds, strict=True)
    return {"ids": ids, "kinds": id_document(numbers)} | {
        name: list(values) for name, values in zip(_KINDS, columns, strict=True)
    }


def _admission_rows(dialect: str) -> Any:
    """The admissions with the ids of their runs; PostgreSQL assigns the ids here, in order of admission."""
    metadata = tables_for(dialect).metadata
    if dialect == SQLITE:
        return rows_of(dialect, "rows", {"id": BigId, "metadata_id": BigId, **_KINDS})
    from sqlalchemy.dialects.postgresql import ARRAY

    listed = (
        func.unnest(id_array("ids", BigId), id_array("kinds", SmallInteger()))
        .table_valued(
            column("id", BigId), column("kind", SmallInteger), with_ordinality="place", name="listed"
        )
        .render_derived()
    )
    of_kind = [
        select(bindparam(name, type_=ARRAY(kind))).scalar_subquery()[listed.c.kind].label(name)
        for name, kind in _KINDS.items()
    ]
    in_order = select(listed.c.id, *of_kind).order_by(listed.c.place).subquery("in_order")
    return select(in_order, next_id(metadata).label("metadata_id")).cte("given")


def _build_mark(dialect: str, admissions: Any) -> Any:
    queue = tables_for(dialect).work_queue
    # An entry that leaves the queue needs no new mark; not writing it saves bytes in the log.
    unchanged = {WRITTEN_IN: queue.c[WRITTEN_IN]} if WRITTEN_IN in queue.c else {}
    return (
        update(queue)
        .where(queue.c.id == admissions.c.id, text("status = 'queued'"))
        .values(
            status=sql_literal(QueueStatus.DISPATCHED),
            metadata_id=admissions.c.metadata_id,
            dispatched_at=bindparam("now", type_=Utc),
            **unchanged,
        )
    )


@cache
def _mark_dispatched(dialect: str) -> Update:
    return _build_mark(dialect, _admission_rows(dialect))


def _run_source(dialect: str) -> Any:
    """The dispatched entries joined to their admissions; on PostgreSQL this is the update that marks them."""
    queue, admissions = tables_for(dialect).work_queue, _admission_rows(dialect)
    columns: list[Any] = [
        queue.c.id.label("entry_id"),
        *(queue.c[name] for name in COPIED_COLUMNS),
        *(admissions.c[name] for name in ("metadata_id", *_KINDS)),
    ]
    if dialect != SQLITE:
        return _build_mark(dialect, admissions).returning(*columns).cte("marked")
    joined = select(*columns).join_from(queue, admissions, admissions.c.id == queue.c.id)
    return joined.where(queue.c.metadata_id == admissions.c.metadata_id).subquery("marked")


@cache
def _insert_runs(dialect: str) -> Insert:
    metadata, source = tables_for(dialect).metadata, _run_source(dialect)
    now = bindparam("now", type_=Utc)
    is_claimed = source.c.worker_id.is_not(None)
    columns: dict[str, Any] = {name: source.c[name] for name in (*COPIED_COLUMNS, *KIND_COLUMNS)} | {
        "id": source.c.metadata_id,
        "entry_id": source.c.entry_id,
        "state": case((is_claimed, sql_literal(State.IN_PROGRESS)), else_=sql_literal(State.PENDING)),
        "created_at": now,
        "started_at": case((source.c.starts, now)),
    }
    rows = select(*columns.values()).order_by(source.c.metadata_id)
    statement = insert(metadata).from_select(list(columns), rows)
    claimed = claim_columns(dialect, waited=cast(literal_column("0"), Float))
    return statement.returning(*claimed, metadata.c.entry_id, metadata.c.worker_id)


@cache
def _link_dead_letters(dialect: str) -> Update:
    """Record on each requeued dead letter the run of its entry."""
    t = tables_for(dialect)
    entries = ids_of(dialect)
    return (
        update(t.dead_letter)
        .where(
            t.dead_letter.c.id == t.work_queue.c.dead_letter_id,
            t.work_queue.c.id == entries.c.id,
            t.work_queue.c.metadata_id.is_not(None),
        )
        .values(retry_metadata_id=t.work_queue.c.metadata_id)
    )
