"""Lists of runs, newest first, narrowed in every way people ask for."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import func, select, union_all

from trax.records.metadata import ADMINISTRATIVE
from trax.records.states import ACTIVE, State
from trax.store import metadata
from trax.store.counting import about, in_index
from trax.store.lists import Lists
from trax.store.names import group_id, manifest_id
from trax.store.paging import Search, id_at
from trax.store.schema import tables
from trax.store.types import word

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Select, Table

    from trax.records.filters import RunFilter

RARE: Final = 5_000
"""A train with fewer runs is looked up by its own index; one with more is found along the way."""
SKEW: Final = timedelta(minutes=1)
"""By how much the order of ids and the order of moments may differ."""
FOUND_BY_NAME: Final = 200
HEX: Final = re.compile(r"[0-9a-f]{6,32}")
INDEXES: Final = {
    State.PENDING: "metadata_claim_idx",
    State.IN_PROGRESS: "metadata_running_idx",
    State.FAILED: "metadata_failed_idx",
    State.CANCELLED: "metadata_cancelled_idx",
}


def _search(connection: Connection, wanted: RunFilter) -> Search:
    run = tables(connection).metadata
    search = _in_time(connection, wanted, Search(table=run, others=_others(connection, run, wanted)))
    if wanted.state is not None and wanted.state in INDEXES:
        search = _in_state(connection, wanted.state, search)
    if wanted.manifest is not None:
        search = search.narrowed(run.c.manifest_id == manifest_id(connection, wanted.manifest))
    if wanted.parent_id is not None:
        search = search.narrowed(run.c.parent_id == wanted.parent_id)
    if wanted.train is not None and _is_rare(connection, run, wanted.train):
        search = search.narrowed(_of_train(run, wanted.train))
    if wanted.external_id is not None:
        search = _named(connection, wanted.external_id, search)
    return search


def _others(connection: Connection, run: Table, wanted: RunFilter) -> list[ColumnElement[bool]]:
    """What no index answers."""
    found: list[ColumnElement[bool]] = []
    if wanted.state is State.COMPLETED:
        found.append(run.c.state == word(wanted.state))
    if wanted.group is not None:
        found.append(run.c.group_id == group_id(connection, wanted.group))
    if wanted.since is not None:
        found.append(run.c.created_at >= wanted.since)
    if wanted.until is not None:
        found.append(run.c.created_at < wanted.until)
    if wanted.train is not None:
        found.append(run.c.train == wanted.train)
    elif not wanted.admin and wanted.state not in INDEXES:  # what administers leaves only what completed
        found.append(run.c.train.not_like(f"{ADMINISTRATIVE}%"))
    return found


def _in_time(connection: Connection, wanted: RunFilter, search: Search) -> Search:
    """Moments as ids: there is no index by when a run was made, and none is needed."""
    run = search.table
    first = 0 if wanted.since is None else id_at(connection, run, wanted.since - SKEW)
    if wanted.until is not None:
        end = id_at(connection, run, wanted.until + SKEW)
        return replace(search, indexed=(run.c.id >= first, run.c.id < end), total=lambda: end - first)
    if wanted.since is not None:
        return replace(search, indexed=(run.c.id >= first,), total=lambda: _from(connection, run, first))
    return search


def _from(connection: Connection, run: Table, first: int) -> int:
    last = connection.execute(select(func.max(run.c.id))).scalar() or 0
    return min(about(connection, run), last + 1 - first)


def _in_state(connection: Connection, state: State, search: Search) -> Search:
    run = search.table
    is_so = run.c.state == word(state)
    if state in ACTIVE:  # few, and their index is in another order: found first, they are put in order then
        active = run.alias("active")
        is_so = run.c.id.in_(select(active.c.id).where(active.c.state == word(state)))
    if search.indexed:
        return search.narrowed(is_so)
    total = partial(in_index, connection, run, INDEXES[state], f"state = '{state}'")
    return search.narrowed(is_so, total=total)


def _is_rare(connection: Connection, run: Table, train: str) -> bool:
    some = select(run.c.train).where(run.c.train == train, run.c.ended_at.is_not(None)).limit(RARE).subquery()
    return connection.execute(select(func.count()).select_from(some)).scalar_one() < RARE


def _of_train(run: Table, train: str) -> ColumnElement[bool]:
    """The runs of a train by its own index, and by theirs those that have not ended."""
    ended, active = run.alias("ended"), run.alias("active")
    over = select(ended.c.id).where(ended.c.train == train, ended.c.ended_at.is_not(None))
    under_way = [
        select(active.c.id).where(active.c.state == word(state), active.c.train == train) for state in ACTIVE
    ]
    return run.c.id.in_(union_all(over, *under_way))


def _named(connection: Connection, external_id: str, search: Search) -> Search:
    """A run is found through the entry it came from, whose name is indexed; without one, along the way."""
    run = search.table
    ids = list(connection.execute(_of_entries(connection, external_id)).scalars())
    if ids:
        return search.narrowed(run.c.id.in_(ids))
    begins = run.c.external_id.startswith(external_id, autoescape=True)
    return replace(search, others=(*search.others, begins))


def _of_entries(connection: Connection, external_id: str) -> Select[Any]:
    queue = tables(connection).work_queue
    query = select(queue.c.metadata_id).where(queue.c.metadata_id.is_not(None)).limit(FOUND_BY_NAME)
    if not HEX.fullmatch(external_id):
        return query.where(queue.c.external_id == external_id)
    beyond = f"{external_id}g"  # follows every name that begins so, in every order of text
    return query.where(queue.c.external_id >= external_id, queue.c.external_id < beyond)


RUNS: Final = Lists(search=_search, records=metadata.records, record=metadata.record)
page, listed, count = RUNS.page, RUNS.listed, RUNS.count
