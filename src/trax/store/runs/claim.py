"""Claim pending runs for a worker, and load the runs that a worker holds."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Float, Text, bindparam, case, cast, literal_column, select, text, update

from trax.records.states import CancelReason, State
from trax.store.dialect import among, document, id_document, ids_of, now_parameter, rows_of, seconds_between
from trax.store.pipeline import run_together
from trax.store.schema import tables, tables_for
from trax.store.types import BigId, Utc, sql_literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Row, Select, Update

    from trax.store.pipeline import BoundStatement, Rows


PENDING_HERE = "state = 'pending' AND submitter = 'local'"


class Claimed(NamedTuple):
    """A run that this worker has claimed. `input` is JSON text."""

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
    """From admission to the claim."""
    group_priority: int = 0

    @property
    def rank(self) -> tuple[int, int]:
        """Higher ranks start first."""
        return self.group_priority, self.priority


class HeldRun(NamedTuple):
    """A run in progress on a worker; the cancel reason is set if its cancellation was requested."""

    metadata_id: int
    external_id: str
    train: str
    manifest_id: int | None
    attempt: int
    cancel_reason: CancelReason | None


class ClaimRequest(NamedTuple):
    """What a worker offers at a claim: its id and host, its free slots, and the trains it can run.

    With `ahead` a dispatch cycle also claims that many runs which begin when a slot becomes free. They have
    no start time until then.
    """

    worker_id: int
    host: str
    slots: int
    trains: frozenset[str]
    cpu_slots: int = 0
    cpu_trains: frozenset[str] = frozenset()
    groups: frozenset[str] | None = None
    """The groups whose runs it accepts; None accepts all, and runs without a group."""
    has_filter: bool = False
    """Whether its work filter excludes some of the trains it knows."""
    ahead: int = 0

    @property
    def places(self) -> int:
        """The free slots, and the places in its backlog."""
        return self.slots + self.ahead

    @property
    def shares(self) -> list[tuple[frozenset[str], int]]:
        """The trains to claim and the slots for each set: cpu trains get at most the free processes."""
        if not self.cpu_trains or self.cpu_slots >= self.slots:
            return [(self.trains, self.slots)]
        shares = [(self.cpu_trains, self.cpu_slots), (self.trains - self.cpu_trains, self.slots)]
        return [(trains, slots) for trains, slots in shares if trains and slots]


def claim(connection: Connection, request: ClaimRequest, *, now: datetime | None) -> list[Claimed]:
    """Move pending runs to this worker, up to its free slots, by priority and then age.

    Two workers may want the same row. The second finds it locked or already claimed, and gets another one
    instead of waiting.
    """
    return parse_claimed(run_together(connection, *claim_statements(connection, request, now)))


def claim_statements(
    connection: Connection, request: ClaimRequest, now: datetime | None
) -> list[BoundStatement]:
    """The statements of a claim, for callers that send more in the same round trip."""
    shared: dict[str, Any] = {"worker_id": request.worker_id, "host": request.host, "now": now}
    if request.groups is not None:
        shared["groups"] = _names(request.groups)
    statement = _claim(connection.dialect.name, request.groups is not None)
    return [
        (statement, {**shared, "trains": _names(trains), "slots": slots}) for trains, slots in request.shares
    ]


def parse_claimed(results: Sequence[Rows]) -> list[Claimed]:
    """The runs that these statements claimed, in the order in which to start them."""
    runs = [Claimed(*row) for rows in results for row in rows]
    runs.sort(key=lambda run: (-run.priority, run.metadata_id))
    return runs


def claim_columns(dialect: str, waited: ColumnElement[Any] | None = None) -> list[ColumnElement[Any]]:
    """The columns of `Claimed` but the last; `waited` is the time from admission to claim, if it is known."""
    t = tables_for(dialect)
    # Literal SQL: SQLAlchemy does not correlate a subquery to the table of an INSERT.
    name = f"SELECT named.external_id FROM {t.manifest.fullname} named WHERE named.id"  # noqa: S608 - no user input
    manifest = literal_column(f"({name} = {t.metadata.fullname}.manifest_id)", Text)
    if waited is None:
        waited = cast(seconds_between(dialect, t.metadata.c.created_at, t.metadata.c.started_at), Float)
    return [*(t.metadata.c[column] for column in ("id", *Claimed._fields[1:9])), manifest, waited]


def group_statements(dialect: str, request: ClaimRequest) -> list[BoundStatement]:
    """The statement that loads the ids of the accepted groups; none if all groups are accepted."""
    return [] if request.groups is None else [(select_group_ids(dialect), {"groups": _names(request.groups)})]


@lru_cache(maxsize=8)
def _names(names: frozenset[str]) -> str:
    return document({"name": name} for name in sorted(names))


def has_pending(connection: Connection) -> bool:
    metadata = tables(connection).metadata
    return connection.execute(select(metadata.c.id).where(text(PENDING_HERE)).limit(1)).first() is not None


def load_held_runs(connection: Connection, worker_id: int) -> list[HeldRun]:
    """The runs of this worker, with the cancellations requested."""
    metadata = tables(connection).metadata
    columns = [
        metadata.c[name] for name in ("id", *HeldRun._fields[1:-1], "cancel_requested", "cancel_reason")
    ]
    query = select(*columns).where(text("state = 'in_progress'"), metadata.c.worker_id == worker_id)
    return [_build_held_run(row) for row in connection.execute(query)]


def _build_held_run(row: Row[Any]) -> HeldRun:
    reason = CancelReason(row.cancel_reason or CancelReason.REQUESTED) if row.cancel_requested else None
    return HeldRun(row.id, row.external_id, row.train, row.manifest_id, row.attempt, reason)


@cache
def _select_claimable(dialect: str, by_group: bool) -> Select[Any]:  # noqa: FBT001
    metadata = tables_for(dialect).metadata
    trains = rows_of(dialect, "trains", {"name": metadata.c.train.type})
    groups = [metadata.c.group_id.in_(select_group_ids(dialect))] if by_group else []
    return (
        select(metadata.c.id)
        .where(text(PENDING_HERE), metadata.c.train.in_(select(trains.c.name)), *groups)
        .order_by(metadata.c.priority.desc(), metadata.c.id)
        .limit(bindparam("slots"))
        .with_for_update(skip_locked=True)
    )


@cache
def select_group_ids(dialect: str) -> Select[int]:
    """Select the ids of the groups named in the document parameter `groups`."""
    group = tables_for(dialect).manifest_group
    names = rows_of(dialect, "groups", {"name": group.c.name.type})
    return select(group.c.id).where(group.c.name.in_(select(names.c.name)))


@cache
def _claim(dialect: str, by_group: bool) -> Update:  # noqa: FBT001
    metadata = tables_for(dialect).metadata
    return (
        update(metadata)
        .where(metadata.c.id.in_(_select_claimable(dialect, by_group)))
        .values(
            state=sql_literal(State.IN_PROGRESS),
            worker_id=bindparam("worker_id", type_=BigId),
            host=bindparam("host"),
            started_at=now_parameter(dialect),
        )
        .returning(*claim_columns(dialect))
    )


class NamedRun(NamedTuple):
    """A run that a submitter has handed over by its id."""

    metadata_id: int
    train: str
    priority: int


def load_named(connection: Connection, metadata_ids: Iterable[int]) -> list[NamedRun]:
    """Load these runs, in the order in which they start. One that does not exist is left out."""
    run = tables(connection).metadata
    query = select(run.c.id, run.c.train, run.c.priority).where(among(connection, run.c.id))
    rows = connection.execute(query, {"ids": id_document(metadata_ids)})
    return sorted((NamedRun(*row) for row in rows), key=lambda each: (-each.priority, each.metadata_id))


def claim_by_id(
    connection: Connection,
    starting: Iterable[int],
    waiting: Iterable[int] = (),
    *,
    worker_id: int,
    host: str,
    now: datetime,
) -> list[Claimed]:
    """Claim the runs that are still pending for this worker; others have already been claimed or ended.

    Those that wait for a slot have no start time until `start_waiting`.
    """
    starting = sorted(starting)
    ids = id_document(sorted({*starting, *waiting}))
    parameters = {"ids": ids, "starting": id_document(starting), "worker_id": worker_id, "host": host}
    rows = connection.execute(_claim_by_id(connection.dialect.name), {**parameters, "now": now})
    return sorted((Claimed(*row) for row in rows), key=lambda run: (-run.priority, run.metadata_id))


def start_waiting(connection: Connection, metadata_id: int, *, worker_id: int, now: datetime) -> bool:
    """Record the start of a run that has waited for a slot; false if this worker lost it."""
    run = tables(connection).metadata
    is_held = (run.c.id == metadata_id, text("state = 'in_progress'"), run.c.worker_id == worker_id)
    return connection.execute(update(run).where(*is_held).values(started_at=now)).rowcount == 1


@cache
def _claim_by_id(dialect: str) -> Update:
    """Lock in the order of ids: two receivers with the same runs must not deadlock."""
    metadata = tables_for(dialect).metadata
    ids, starting = ids_of(dialect), ids_of(dialect, "starting")
    pending = (
        select(metadata.c.id)
        .where(metadata.c.id.in_(select(ids.c.id)), text("state = 'pending'"))
        .order_by(metadata.c.id)
        .with_for_update()
    )
    return (
        update(metadata)
        .where(metadata.c.id.in_(pending))
        .values(
            state=sql_literal(State.IN_PROGRESS),
            worker_id=bindparam("worker_id", type_=BigId),
            host=bindparam("host"),
            started_at=case((metadata.c.id.in_(select(starting.c.id)), bindparam("now", type_=Utc))),
        )
        .returning(*claim_columns(dialect))
    )
