"""Taking pending runs: the step from the gate to a worker."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Float, Text, bindparam, cast, literal_column, select, text, update

from trax.records.states import CancelReason, State
from trax.store.dialect import document, moment, rows_of, seconds_between
from trax.store.pipeline import run_together
from trax.store.schema import tables, tables_for
from trax.store.types import BigId, word

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Row, Select, Update

    from trax.store.pipeline import Rows, Step

PENDING_HERE = "state = 'pending' AND submitter = 'local'"


class Claimed(NamedTuple):
    """A run that this worker holds. `input` is JSON text."""

    metadata_id: int
    external_id: str
    train: str
    input: str | None
    manifest_id: int | None
    attempt: int
    priority: int
    scheduled_for: datetime | None
    timeout_seconds: float | None
    manifest: str | None = None
    waited_seconds: float | None = None
    """From the gate to the start."""


class Held(NamedTuple):
    """A run that a worker holds by what its record says; `to_stop` is why it is to stop, if it is."""

    metadata_id: int
    external_id: str
    train: str
    manifest_id: int | None
    attempt: int
    to_stop: CancelReason | None


class Taker(NamedTuple):
    """A worker that takes runs: who it is, how many more it can run, and the names of what it can run."""

    worker_id: int
    host: str
    slots: int
    trains: frozenset[str]
    cpu_slots: int = 0
    cpu_trains: frozenset[str] = frozenset()
    groups: frozenset[str] | None = None
    """The groups whose runs it takes; None: all, and those without one."""
    is_picky: bool = False
    """Whether it leaves some of what its code knows to others."""

    @property
    def shares(self) -> list[tuple[frozenset[str], int]]:
        """Which trains to take, and how many runs of them: of cpu trains as many as there are processes."""
        if not self.cpu_trains or self.cpu_slots >= self.slots:
            return [(self.trains, self.slots)]
        shares = [(self.cpu_trains, self.cpu_slots), (self.trains - self.cpu_trains, self.slots)]
        return [(trains, slots) for trains, slots in shares if trains and slots]


def claim(connection: Connection, taker: Taker, *, now: datetime | None) -> list[Claimed]:
    """Move pending runs to this worker, as many as it has slots, highest priority first, older ones first.

    Two workers may want the same row. The loser finds it locked or already taken, and gets another one
    instead of waiting.
    """
    return claimed(run_together(connection, *claiming(connection, taker, now)))


def claiming(connection: Connection, taker: Taker, now: datetime | None) -> list[Step]:
    """The same as steps, for those that have more to do in the same trip."""
    same: dict[str, Any] = {"worker_id": taker.worker_id, "host": taker.host, "now": now}
    if taker.groups is not None:
        same["groups"] = _names(taker.groups)
    statement = _claim(connection.dialect.name, taker.groups is not None)
    return [(statement, {**same, "trains": _names(trains), "slots": slots}) for trains, slots in taker.shares]


def claimed(results: Sequence[Rows]) -> list[Claimed]:
    """What these steps have given, in the order in which to begin."""
    runs = [Claimed(*row) for rows in results for row in rows]
    runs.sort(key=lambda run: (-run.priority, run.metadata_id))
    return runs


def held_columns(dialect: str) -> list[ColumnElement[Any]]:
    """What a worker wants to know of a run it holds."""
    t = tables_for(dialect)
    # Spelled out, since SQLAlchemy does not tie a subquery to the table of an INSERT.
    name = f"SELECT named.external_id FROM {t.manifest.fullname} named WHERE named.id"  # noqa: S608 - ours
    manifest = literal_column(f"({name} = {t.metadata.fullname}.manifest_id)", Text)
    waited = cast(seconds_between(dialect, t.metadata.c.created_at, t.metadata.c.started_at), Float)
    return [*(t.metadata.c[column] for column in ("id", *Claimed._fields[1:-2])), manifest, waited]


def looking_for_groups(dialect: str, taker: Taker) -> list[Step]:
    """The step that finds the groups of a taker that has some, for those that place runs themselves."""
    return [] if taker.groups is None else [(groups_named(dialect), {"groups": _names(taker.groups)})]


@lru_cache(maxsize=8)
def _names(names: frozenset[str]) -> str:
    return document({"name": name} for name in sorted(names))


def is_any_pending(connection: Connection) -> bool:
    metadata = tables(connection).metadata
    return connection.execute(select(metadata.c.id).where(text(PENDING_HERE)).limit(1)).first() is not None


def held(connection: Connection, worker_id: int) -> list[Held]:
    """The runs of this worker, and which of them are to stop."""
    metadata = tables(connection).metadata
    columns = [metadata.c[name] for name in ("id", *Held._fields[1:-1], "cancel_requested", "cancel_reason")]
    query = select(*columns).where(text("state = 'in_progress'"), metadata.c.worker_id == worker_id)
    return [_held(row) for row in connection.execute(query)]


def _held(row: Row[Any]) -> Held:
    why = CancelReason(row.cancel_reason or CancelReason.REQUESTED) if row.cancel_requested else None
    return Held(row.id, row.external_id, row.train, row.manifest_id, row.attempt, why)


@cache
def _wanted(dialect: str, by_group: bool) -> Select[Any]:  # noqa: FBT001
    metadata = tables_for(dialect).metadata
    known = rows_of(dialect, "trains", {"name": metadata.c.train.type})
    groups = [metadata.c.group_id.in_(groups_named(dialect))] if by_group else []
    return (
        select(metadata.c.id)
        .where(text(PENDING_HERE), metadata.c.train.in_(select(known.c.name)), *groups)
        .order_by(metadata.c.priority.desc(), metadata.c.id)
        .limit(bindparam("slots"))
        .with_for_update(skip_locked=True)
    )


@cache
def groups_named(dialect: str) -> Select[int]:
    """The ids of the groups with these names, given as a document under `groups`."""
    group = tables_for(dialect).manifest_group
    names = rows_of(dialect, "groups", {"name": group.c.name.type})
    return select(group.c.id).where(group.c.name.in_(select(names.c.name)))


@cache
def _claim(dialect: str, by_group: bool) -> Update:  # noqa: FBT001
    metadata = tables_for(dialect).metadata
    return (
        update(metadata)
        .where(metadata.c.id.in_(_wanted(dialect, by_group)))
        .values(
            state=word(State.IN_PROGRESS),
            worker_id=bindparam("worker_id", type_=BigId),
            host=bindparam("host"),
            started_at=moment(dialect),
        )
        .returning(*held_columns(dialect))
    )
