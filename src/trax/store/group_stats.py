"""Counters of groups, and the graph of dependencies between groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import func, select

from trax.records.stats import GroupGraph, GroupStats
from trax.records.tally import RunTotals
from trax.store import manifest_groups, tallies
from trax.store.dialect import among, id_document
from trax.store.schema import tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from trax.records import ManifestGroup
    from trax.store.ended import MinuteTotals

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
        tallies.sum_by_group(latest),
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
        group = manifest_groups.get(connection, name)
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
