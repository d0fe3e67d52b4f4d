"""Manifest groups (table `manifest_group`): create, change, list; priorities, totals, dependencies."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import and_, bindparam, func, or_, select, text, update

from trax.errors import DefinitionError
from trax.records.manifest import ManifestGroup
from trax.records.stats import GroupGraph, GroupStats, RunTotals
from trax.store import stats
from trax.store.dialect import (
    among,
    document,
    id_document,
    insert,
    is_sqlite,
    name_document,
    rows_of,
    take_gate_lock,
)
from trax.store.listing import RecordQuery, Search
from trax.store.schema import tables, tables_for
from trax.store.schema.manifest import AD_HOC
from trax.store.schema.work_queue import DELAYED, NOT_READY, PARKED, READY
from trax.store.types import BigId, ByteOrderText, Utc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Row, Select, Table

    from trax.store.dialect import Insert
    from trax.store.stats import MinuteTotals


GRACE: Final = timedelta(minutes=1)
"""Within this time, a transaction that read the old priority has made its first write."""
MIN_INTERVAL: Final = timedelta(seconds=1)
MAX_INTERVAL: Final = timedelta(minutes=1)


MAX_AD_HOC_GROUPS: Final = 100_000
"""How many groups may exist only because jobs were queued in them; whoever can queue a job can make one."""


class GroupCode(NamedTuple):
    """What the code of an app declares of groups: the options that it sets, by name; None: not declared."""

    app: str
    options_of: Callable[[str], Mapping[str, Any] | None]


def _declares_nothing(_name: str) -> None:
    """The options of groups where there is no code."""


NO_CODE: Final = GroupCode("", _declares_nothing)


def get_or_create(
    connection: Connection,
    names: Iterable[str],
    *,
    now: datetime,
    code: GroupCode = NO_CODE,
    ad_hoc: bool = False,
) -> dict[str, ManifestGroup]:
    """The groups with these names. Missing ones are created as code declares them, else without a limit.

    With `ad_hoc`, a job is queued in them: not too many groups may exist only for that.
    """
    wanted = set(names)
    groups = load_by_names(connection, wanted)
    missing = wanted - groups.keys()
    if missing:
        new = {name: code.options_of(name) for name in sorted(missing)}
        if ad_hoc:
            _refuse_too_many(connection, [name for name, options in new.items() if options is None])
        rows = [_new_row(name, options, code.app, ad_hoc=ad_hoc) for name, options in new.items()]
        connection.execute(_add(connection), {"rows": document(rows), "now": now})
        groups |= load_by_names(connection, missing)
    return groups


def _refuse_too_many(connection: Connection, new: Sequence[str]) -> None:
    if not new:
        return
    group = tables(connection).manifest_group
    count = connection.execute(select(func.count()).select_from(group).where(text(AD_HOC))).scalar_one()
    if count + len(new) > MAX_AD_HOC_GROUPS:
        raise DefinitionError(
            f"group {new[0]!r} does not exist, and there are {count:,} groups already that no code declares "
            f"(at most {MAX_AD_HOC_GROUPS:,}); use a group that exists, or declare it with app.group(…)"
        )


def _new_row(name: str, options: Mapping[str, Any] | None, app: str, *, ad_hoc: bool) -> dict[str, Any]:
    defaults = {"priority": 0, "max_active_jobs": None, "enabled": True}
    declared = None if options is None else json.dumps({app: dict(options)})
    is_ad_hoc = ad_hoc and options is None
    return {"name": name, **defaults, **(options or {}), "declared": declared, "ad_hoc": is_ad_hoc}


def must_create_first(connection: Connection, name: str) -> bool:
    """Whether this group must be created in a separate transaction, before the caller's continues.

    Created in the caller's transaction, it would block every user of the group until that ends. On SQLite
    they wait anyway.
    """
    return not is_sqlite(connection) and get(connection, name) is None


def get(connection: Connection, name: str) -> ManifestGroup | None:
    return load_by_names(connection, {name}).get(name)


def load_for_update(connection: Connection, name: str) -> ManifestGroup | None:
    """Load a group and lock it until the transaction ends."""
    group = tables(connection).manifest_group
    query = select(group).where(group.c.name == name).with_for_update(key_share=True)
    row = connection.execute(query).one_or_none()
    return _record(row) if row else None


def priorities(connection: Connection, ids: Iterable[int]) -> dict[int, int]:
    group = tables(connection).manifest_group
    query = select(group.c.id, group.c.priority).where(among(connection, group.c.id))
    return {row.id: row.priority for row in connection.execute(query, {"ids": id_document(ids)})}


def load_list(connection: Connection, *, after: str | None = None, limit: int = 50) -> list[ManifestGroup]:
    """Groups in the order of their names; `after` is the name of the last one already read.

    Skips groups that contain only retired manifests.
    """
    return GROUPS.load_list(connection, None, after=after, limit=limit)


def _select_records(connection: Connection) -> Select[Any]:
    return select(tables(connection).manifest_group)


def _search(connection: Connection, _group_filter: None) -> Search:
    return Search(table=tables(connection).manifest_group, unindexed=(_is_in_use(connection),), key="name")


def change(connection: Connection, name: str, changes: Mapping[str, Any], *, now: datetime) -> bool:
    """Change a group; a new priority is also written to its queued entries.

    It is applied again later: see `apply_priorities`.
    """
    group = tables(connection).manifest_group
    changes_priority = "priority" in changes
    apply_again = {"priority_changed_at": now, "apply_priority_at": now, "priority_horizon": None}
    statement = (
        update(group)
        .where(group.c.name == name)
        .values(
            **changes,
            updated_at=now,
            **(apply_again if changes_priority and not is_sqlite(connection) else {}),
        )
        .returning(group.c.id)
    )
    group_id = connection.execute(statement).scalar()
    if group_id is not None and changes_priority:
        _set_entry_priorities(connection, group_id, changes["priority"])
    return group_id is not None


def apply_priorities(connection: Connection, *, now: datetime) -> int:
    """Correct queued entries that were inserted with an old priority of their group; returns how many.

    An enqueue reads the priority of the group and commits later; much later in a caller's transaction. A
    change of the priority in between does not see that entry. Locking the group's row at enqueue would make
    an operator wait for the slowest caller, and make all callers write to one row. Instead, the change is
    applied again at growing intervals, until every transaction has ended that could have read the old
    priority.

    `priority_horizon` is the id of the first transaction that began after all of those; they have ended once
    the oldest open transaction has at least that id. A transaction gets its id at its first write, which
    closely follows the read: `GRACE` allows for that gap. SQLite has one writer at a time, so nothing is
    missed there.
    """
    if is_sqlite(connection):
        return 0
    take_gate_lock(connection)  # as in a dispatch cycle: both update many entries, in different orders
    group = tables(connection).manifest_group
    columns = ("id", "priority", "priority_changed_at", "priority_horizon")
    # Read before the entries: writes of transactions that have ended by now are visible to the update below.
    oldest, upcoming = (_snapshot_transaction_id(name) for name in ("pg_snapshot_xmin", "pg_snapshot_xmax"))
    query = select(*(group.c[name] for name in columns), oldest.label("oldest"), upcoming.label("upcoming"))
    moved = 0
    for row in connection.execute(query.where(group.c.apply_priority_at <= now).order_by(group.c.id)).all():
        moved += _set_entry_priorities(connection, row.id, row.priority)
        is_unchanged = (group.c.id == row.id, group.c.priority_changed_at == row.priority_changed_at)
        connection.execute(
            update(group)
            .where(*is_unchanged, group.c.priority == row.priority)
            .values(_next_application(row, now))
        )
    return moved


def _next_application(row: Row[Any], now: datetime) -> dict[str, Any]:
    since = now - row.priority_changed_at
    if row.priority_horizon is not None and row.oldest >= row.priority_horizon:
        return {"priority_changed_at": None, "apply_priority_at": None, "priority_horizon": None}
    horizon = row.upcoming if row.priority_horizon is None and since >= GRACE else row.priority_horizon
    return {
        "apply_priority_at": now + min(max(since, MIN_INTERVAL), MAX_INTERVAL),
        "priority_horizon": horizon,
    }


def _snapshot_transaction_id(name: str) -> ColumnElement[int]:
    snapshot = func.pg_current_snapshot()
    return getattr(func, name)(snapshot).cast(ByteOrderText).cast(BigId)


def _set_entry_priorities(connection: Connection, group_id: int, priority: int) -> int:
    """Update each status separately, because each has its own index."""
    queue = tables(connection).work_queue
    is_stale = (queue.c.group_id == group_id, queue.c.group_priority != priority)
    moved = 0
    for part in (READY, DELAYED, PARKED):
        statement = update(queue).where(*is_stale, text(part)).values(group_priority=priority)
        moved += connection.execute(statement).rowcount
    return moved


def priority_now(queue: Table, group: Table) -> ColumnElement[int]:
    """The current priority of an entry's group; an entry without a group keeps its value."""
    of_group = select(group.c.priority).where(group.c.id == queue.c.group_id).scalar_subquery()
    return func.coalesce(of_group, queue.c.group_priority)


def load_by_names(connection: Connection, names: set[str]) -> dict[str, ManifestGroup]:
    """The existing groups among these names."""
    wanted = name_document("name", sorted(names))
    rows = connection.execute(_by_name(connection.dialect.name), {"names": wanted})
    return {row.name: _record(row) for row in rows}


def _is_in_use(connection: Connection) -> ColumnElement[bool]:
    """Whether a group has live manifests, queued entries, or is not retired and has no manifests or options.

    `_has_any` instead of EXISTS: PostgreSQL would read all manifests into a hash table for one page of
    groups.
    """
    t = tables(connection)
    group, manifest, queue = t.manifest_group.c, t.manifest.c, t.work_queue.c
    inside = select(manifest.id).where(manifest.group_id == group.id)
    queued = (select(queue.id).where(queue.group_id == group.id, text(part)) for part in (READY, NOT_READY))
    has_options = or_(group.max_active_jobs.is_not(None), group.priority != 0, ~group.enabled)
    return or_(
        _has_any(inside.where(manifest.retired_at.is_(None))),
        and_(group.retired_at.is_(None), or_(~_has_any(inside), has_options)),
        *(entries.exists() for entries in queued),
    )


def _has_any(rows: Select[int]) -> ColumnElement[bool]:
    """Whether there is a row, found by an index for each row of the outer query."""
    return rows.limit(1).scalar_subquery().is_not(None)


@cache
def _by_name(dialect: str) -> Select[Any]:
    group = tables_for(dialect).manifest_group
    wanted = rows_of(dialect, "names", {"name": group.c.name.type})
    return select(group).join(wanted, wanted.c.name == group.c.name)


def _add(connection: Connection) -> Insert:
    group = tables(connection).manifest_group
    names = ("name", "priority", "max_active_jobs", "enabled", "declared", "ad_hoc")
    new = rows_of(connection.dialect.name, "rows", {name: group.c[name].type for name in names})
    now = bindparam("now", type_=Utc)
    # SQLite parses "FROM … ON" as a join unless a WHERE comes between them.
    rows = select(*(new.c[name] for name in names), now, now).where(text("true"))
    return (
        insert(connection, group)
        .from_select([*names, "created_at", "updated_at"], rows)
        .on_conflict_do_nothing(index_elements=["name"])
    )


def _record(row: Row[Any]) -> ManifestGroup:
    return ManifestGroup(
        id=row.id,
        name=row.name,
        priority=row.priority,
        max_active_jobs=row.max_active_jobs,
        enabled=row.enabled,
        retired_at=row.retired_at,
    )


GROUPS: Final = RecordQuery(search=_search, records=_select_records, record=_record, ascending=True)


MAX_DEPENDENTS: Final = 5_000
"""How many dependents are read for a graph."""


def load_stats(
    connection: Connection, groups: Sequence[ManifestGroup], latest: Iterable[MinuteTotals]
) -> list[GroupStats]:
    """The counters of these groups: stored totals plus runs that ended since (`latest`)."""
    ids = [group.id for group in groups]
    manifests, totals, recent = (
        _count_manifests(connection, ids),
        _load_totals(connection, ids),
        stats.sum_by_group(latest),
    )
    return [
        _stats(group, manifests.get(group.id, 0), [*_parts_of(totals, recent, group_id=group.id)])
        for group in groups
    ]


def load_graph(connection: Connection, name: str | None = None) -> GroupGraph:
    """The dependencies between groups: all, or only those of one group."""
    t = tables(connection)
    parent, child = t.manifest.alias("parent"), t.manifest.alias("child")
    query = (
        select(parent.c.group_id.label("source"), child.c.group_id.label("target"))
        .select_from(child)
        .join(parent, parent.c.id == child.c.depends_on_id)
        .where(child.c.retired_at.is_(None), parent.c.retired_at.is_(None))
    )
    if name is None:
        edges, exact = _distinct_edges(connection, query)
    else:
        group = get(connection, name)
        group_id = group.id if group else -1
        above, all_above = _distinct_edges(connection, query.where(child.c.group_id == group_id))
        below, all_below = _distinct_edges(connection, query.where(parent.c.group_id == group_id))
        edges, exact = above | below, all_above and all_below
    return _build_graph(connection, edges, near=name, exact=exact)


def _distinct_edges(connection: Connection, query: Any) -> tuple[set[tuple[int, int]], bool]:
    """The distinct edges between groups, and whether all dependents were read."""
    bounded = query.limit(MAX_DEPENDENTS + 1).subquery()
    counted = select(bounded.c.source, bounded.c.target, func.count()).group_by(
        bounded.c.source, bounded.c.target
    )
    rows = connection.execute(counted).all()
    edges = {(row.source, row.target) for row in rows if row.source != row.target}
    return edges, sum(row[2] for row in rows) <= MAX_DEPENDENTS


def _build_graph(
    connection: Connection, edges: set[tuple[int, int]], *, near: str | None, exact: bool
) -> GroupGraph:
    group = tables(connection).manifest_group
    ids = {group_id for edge in edges for group_id in edge}
    rows = connection.execute(
        select(group.c.id, group.c.name).where(among(connection, group.c.id)), {"ids": id_document(ids)}
    )
    names = {row.id: row.name for row in rows}
    named_edges = sorted(
        (names[source], names[target]) for source, target in edges if source in names and target in names
    )
    nodes = {name for edge in named_edges for name in edge}
    if near is not None:
        nodes.add(near)
    return GroupGraph(tuple(sorted(nodes)), tuple(named_edges), exact)


def _count_manifests(connection: Connection, ids: Sequence[int]) -> dict[int, int]:
    manifest = tables(connection).manifest
    group_id = manifest.c.group_id
    query = select(group_id, func.count().label("manifests"))
    query = query.where(among(connection, group_id), manifest.c.retired_at.is_(None))
    rows = connection.execute(query.group_by(group_id), {"ids": id_document(ids)})
    return {row.group_id: row.manifests for row in rows}


def _load_totals(connection: Connection, ids: Sequence[int]) -> dict[int, tuple[RunTotals, datetime]]:
    tally = tables(connection).group_tally
    query = select(tally).where(among(connection, tally.c.group_id))
    return {
        row.group_id: (RunTotals(row.completed, row.failed, row.cancelled, row.seconds), row.last_run_at)
        for row in connection.execute(query, {"ids": id_document(ids)})
    }


def _parts_of(
    *sums: dict[int, tuple[RunTotals, datetime]], group_id: int
) -> Iterable[tuple[RunTotals, datetime]]:
    return (by_group[group_id] for by_group in sums if group_id in by_group)


def _stats(group: ManifestGroup, manifests: int, parts: Sequence[tuple[RunTotals, datetime]]) -> GroupStats:
    total = sum((part for part, _ in parts), start=RunTotals())
    return GroupStats(
        group=group,
        manifests=manifests,
        completed=total.completed,
        failed=total.failed,
        cancelled=total.cancelled,
        last_run_at=max((at for _, at in parts), default=None),
    )
