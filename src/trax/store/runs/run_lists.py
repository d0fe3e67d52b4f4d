"""List, page and count runs by filter, newest first; read their timestamps."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import case, func, select, union_all

from trax.records.metadata import ADMINISTRATIVE_PREFIX
from trax.records.states import ACTIVE, Origin, State
from trax.store.dialect import id_document, ids_of
from trax.store.listing import (
    RecordQuery,
    Search,
    equal_to,
    estimate_index_rows,
    estimate_rows,
    group_id,
    id_at,
    manifest_id,
    period_conditions,
)
from trax.store.runs import metadata
from trax.store.schema import tables, tables_for
from trax.store.types import Utc, sql_literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import ColumnElement, Connection, Select, Table

    from trax.records.nouns import RunFilter


RARE_TRAIN_RUNS: Final = 5_000
"""A train with fewer ended runs is read by its own index; a more common one by scanning all runs."""
SKEW: Final = timedelta(minutes=1)
"""How far the order of ids and of `created_at` may differ."""
MAX_FOUND_BY_NAME: Final = 200
HEX: Final = re.compile(r"[0-9a-f]{6,32}")
INDEXES: Final = {
    State.PENDING: "metadata_claim_idx",
    State.IN_PROGRESS: "metadata_running_idx",
    State.FAILED: "metadata_failed_idx",
    State.CANCELLED: "metadata_cancelled_idx",
}


def _search(connection: Connection, filters: RunFilter) -> Search:
    run, state = tables(connection).metadata, filters.get("state")
    search = Search(table=run, unindexed=_unindexed_conditions(connection, run, filters))
    search = _narrow_to_period(connection, filters, search)
    if state is not None and state in INDEXES:
        search = _narrow_to_state(connection, State(state), search)
    if (manifest := filters.get("manifest")) is not None:
        search = search.narrow(run.c.manifest_id == manifest_id(connection, manifest))
    if (parent_id := filters.get("parent_id")) is not None:
        search = search.narrow(run.c.parent_id == parent_id)
    if (train := filters.get("train")) is not None and _is_rare(connection, run, train):
        search = search.narrow(_is_of_train(run, train))
    if (external_id := filters.get("external_id")) is not None:
        search = _narrow_to_external_id(connection, external_id, search)
    return search


def _unindexed_conditions(
    connection: Connection, run: Table, filters: RunFilter
) -> list[ColumnElement[bool]]:
    """Build the conditions that no index supports."""
    state, train = filters.get("state"), filters.get("train")
    conditions = [*equal_to(run, filters, "train"), *period_conditions(run.c.created_at, filters)]
    if state == State.COMPLETED:
        conditions.append(run.c.state == sql_literal(State.COMPLETED))
    if (group := filters.get("group")) is not None:
        conditions.append(run.c.group_id == group_id(connection, group))
    if train is None and not filters.get("admin") and state not in INDEXES:
        # Administrative runs are always completed.
        conditions.append(run.c.train.not_like(f"{ADMINISTRATIVE_PREFIX}%"))
    return conditions


def _narrow_to_period(connection: Connection, filters: RunFilter, search: Search) -> Search:
    """Convert the time range to a range of ids; there is no index on `created_at`."""
    run, since, until = search.table, filters.get("since"), filters.get("until")
    first = 0 if since is None else id_at(connection, run, since - SKEW)
    if until is not None:
        end = id_at(connection, run, until + SKEW)
        return replace(search, indexed=(run.c.id >= first, run.c.id < end), total=lambda: end - first)
    if since is not None:
        return replace(
            search, indexed=(run.c.id >= first,), total=lambda: _estimate_from(connection, run, first)
        )
    return search


def _estimate_from(connection: Connection, run: Table, first: int) -> int:
    last = connection.execute(select(func.max(run.c.id))).scalar() or 0
    return min(estimate_rows(connection, run), last + 1 - first)


def _narrow_to_state(connection: Connection, state: State, search: Search) -> Search:
    run = search.table
    is_in_state = run.c.state == sql_literal(state)
    if state in ACTIVE:  # few, and their index has another order: select them first, then sort
        active = run.alias("active")
        is_in_state = run.c.id.in_(select(active.c.id).where(active.c.state == sql_literal(state)))
    if search.indexed:
        return search.narrow(is_in_state)
    total = partial(estimate_index_rows, connection, run, INDEXES[state], f"state = '{state}'")
    return search.narrow(is_in_state, total=total)


def _is_rare(connection: Connection, run: Table, train: str) -> bool:
    ended = (
        select(run.c.train)
        .where(run.c.train == train, run.c.ended_at.is_not(None))
        .limit(RARE_TRAIN_RUNS)
        .subquery()
    )
    return connection.execute(select(func.count()).select_from(ended)).scalar_one() < RARE_TRAIN_RUNS


def _is_of_train(run: Table, train: str) -> ColumnElement[bool]:
    """Match the runs of a train: ended ones by its index, active ones by theirs."""
    ended, active = run.alias("ended"), run.alias("active")
    ended_ids = select(ended.c.id).where(ended.c.train == train, ended.c.ended_at.is_not(None))
    active_ids = [
        select(active.c.id).where(active.c.state == sql_literal(state), active.c.train == train)
        for state in ACTIVE
    ]
    return run.c.id.in_(union_all(ended_ids, *active_ids))


def _narrow_to_external_id(connection: Connection, external_id: str, search: Search) -> Search:
    """Match by external id, through the indexed entry if there is one, else by scanning runs."""
    run = search.table
    ids = list(connection.execute(_select_run_ids(connection, external_id)).scalars())
    if ids:
        return search.narrow(run.c.id.in_(ids))
    has_prefix = run.c.external_id.startswith(external_id, autoescape=True)
    return replace(search, unindexed=(*search.unindexed, has_prefix))


def _select_run_ids(connection: Connection, external_id: str) -> Select[Any]:
    queue = tables(connection).work_queue
    query = select(queue.c.metadata_id).where(queue.c.metadata_id.is_not(None)).limit(MAX_FOUND_BY_NAME)
    if not HEX.fullmatch(external_id):
        return query.where(queue.c.external_id == external_id)
    beyond = f"{external_id}g"  # sorts after every id with this prefix, in any collation
    return query.where(queue.c.external_id >= external_id, queue.c.external_id < beyond)


RUNS: Final = RecordQuery(search=_search, records=metadata.select_records, record=metadata.build_record)
page, load_list, count = RUNS.page, RUNS.load_list, RUNS.count


class RunTimes(NamedTuple):
    """The timestamps of one run, and of its entry if that still refers to this run."""

    metadata_id: int
    train: str
    state: str
    attempt: int
    manifest_id: int | None
    group: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    queued_at: datetime | None
    delayed_until: datetime | None

    @property
    def duration_seconds(self) -> float | None:
        return _seconds(self.started_at, self.ended_at)

    @property
    def pickup_seconds(self) -> float | None:
        """From admission to start; None without an entry, or if the entry refers to a later run."""
        return _seconds(self.created_at, self.started_at) if self.queued_at else None

    @property
    def wait_seconds(self) -> float | None:
        """From enqueue, or from the end of its delay, to the start."""
        since = self.queued_at and max(self.queued_at, self.delayed_until or self.queued_at)
        return _seconds(since, self.started_at)

    @property
    def is_dead_lettered(self) -> bool:
        """Whether its entry became a dead letter. An entry that is retried no longer refers to this run."""
        return self.state == State.FAILED and self.manifest_id is None and self.queued_at is not None


def load_run_times(connection: Connection, ids: Iterable[int]) -> list[RunTimes]:
    """Load the timestamps of the runs that exist, in any order."""
    rows = connection.execute(_select_run_times(connection.dialect.name), {"ids": id_document(ids)})
    return [RunTimes(*row) for row in rows]


def _seconds(begin: datetime | None, end: datetime | None) -> float | None:
    return None if begin is None or end is None else max(0.0, (end - begin).total_seconds())


@cache
def _select_run_times(dialect: str) -> Select[Any]:
    t = tables_for(dialect)
    ids = ids_of(dialect)
    run, entry, group = t.metadata, t.work_queue, t.manifest_group
    is_own_entry = (entry.c.id == run.c.entry_id) & (entry.c.metadata_id == run.c.id)
    return (
        select(
            *(run.c[name] for name in ("id", *RunTimes._fields[1:5])),
            group.c.name,
            run.c.created_at,
            run.c.started_at,
            run.c.ended_at,
            entry.c.created_at,
            entry.c.scheduled_at,
        )
        .join(ids, ids.c.id == run.c.id)
        .outerjoin(group, group.c.id == run.c.group_id)
        .outerjoin(entry, is_own_entry)
    )


class TimedRun(NamedTuple):
    """A run of a manifest: when it was due, started and ended (None: not yet), and how."""

    manifest: str
    due_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    state: State
    attempt: int
    exempt: bool


def load_timed_runs(connection: Connection) -> list[TimedRun]:
    """All runs of manifests, the first due first. A retry is due when its delay is over."""
    query = _select_timed_runs(connection.dialect.name)
    rows = (TimedRun._make(row) for row in connection.execute(query))
    return [run._replace(state=State(run.state)) for run in rows]


@cache
def _select_timed_runs(dialect: str) -> Select[*tuple[Any, ...]]:
    own = tables_for(dialect)
    run, entry, manifest = own.metadata, own.work_queue, own.manifest
    by_schedule = case((entry.c.origin == sql_literal(Origin.SCHEDULE), entry.c.scheduled_for))
    due = func.coalesce(entry.c.scheduled_at, by_schedule, entry.c.created_at, type_=Utc).label("due_at")
    columns = (manifest.c.external_id, due, run.c.started_at, run.c.ended_at, run.c.state, run.c.attempt)
    return (
        select(*columns, run.c.exempt)
        .join(manifest, manifest.c.id == run.c.manifest_id)
        .join(entry, entry.c.id == run.c.entry_id)
        .order_by(due, run.c.id)
    )
