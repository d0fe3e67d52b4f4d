"""What the manifests and runs of groups have come to, and which group waits for which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import func, select

from trax.records.stats import GroupGraph, GroupStats
from trax.records.tally import Sums
from trax.store import manifest_groups, tallies
from trax.store.dialect import among, id_document
from trax.store.schema import tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from trax.records import ManifestGroup
    from trax.store.ended import EndedSum

LOOKED_AT: Final = 5_000
"""How many dependents are looked at for a graph."""


def of_groups(
    connection: Connection, groups: Sequence[ManifestGroup], latest: Iterable[EndedSum]
) -> list[GroupStats]:
    """These groups with their counters: the sums, and what the sums do not have yet."""
    ids = [group.id for group in groups]
    manifests, sums, lately = _manifests(connection, ids), _sums(connection, ids), tallies.of_groups(latest)
    return [
        _stats(group, manifests.get(group.id, 0), [*_present(sums, lately, of=group.id)]) for group in groups
    ]


def graph(connection: Connection, name: str | None = None) -> GroupGraph:
    """Which groups wait for which: all of them, or those next to one."""
    t = tables(connection)
    parent, child = t.manifest.alias("parent"), t.manifest.alias("child")
    query = (
        select(parent.c.group_id.label("source"), child.c.group_id.label("target"))
        .select_from(child)
        .join(parent, parent.c.id == child.c.depends_on_id)
        .where(child.c.retired_at.is_(None), parent.c.retired_at.is_(None))
    )
    if name is None:
        edges, exact = _distinct(connection, query)
    else:
        group = manifest_groups.get(connection, name)
        its_id = group.id if group else -1
        above, all_above = _distinct(connection, query.where(child.c.group_id == its_id))
        below, all_below = _distinct(connection, query.where(parent.c.group_id == its_id))
        edges, exact = above | below, all_above and all_below
    return _drawn(connection, edges, near=name, exact=exact)


def _distinct(connection: Connection, query: Any) -> tuple[set[tuple[int, int]], bool]:
    """The edges among groups that so many dependents make, and whether that was all of them."""
    some = query.limit(LOOKED_AT + 1).subquery()
    counted = select(some.c.source, some.c.target, func.count()).group_by(some.c.source, some.c.target)
    rows = connection.execute(counted).all()
    edges = {(row.source, row.target) for row in rows if row.source != row.target}
    return edges, sum(row[2] for row in rows) <= LOOKED_AT


def _drawn(
    connection: Connection, edges: set[tuple[int, int]], *, near: str | None, exact: bool
) -> GroupGraph:
    group = tables(connection).manifest_group
    ids = {one for edge in edges for one in edge}
    rows = connection.execute(
        select(group.c.id, group.c.name).where(among(connection, group.c.id)), {"ids": id_document(ids)}
    )
    names = {row.id: row.name for row in rows}
    drawn = sorted((names[one], names[other]) for one, other in edges if one in names and other in names)
    nodes = {one for edge in drawn for one in edge}
    if near is not None:
        nodes.add(near)
    return GroupGraph(tuple(sorted(nodes)), tuple(drawn), exact)


def _manifests(connection: Connection, ids: Sequence[int]) -> dict[int, int]:
    manifest = tables(connection).manifest
    its_group = manifest.c.group_id
    query = select(its_group, func.count().label("manifests"))
    query = query.where(among(connection, its_group), manifest.c.retired_at.is_(None))
    rows = connection.execute(query.group_by(its_group), {"ids": id_document(ids)})
    return {row.group_id: row.manifests for row in rows}


def _sums(connection: Connection, ids: Sequence[int]) -> dict[int, tuple[Sums, datetime]]:
    tally = tables(connection).group_tally
    query = select(tally).where(among(connection, tally.c.group_id))
    return {
        row.group_id: (Sums(row.completed, row.failed, row.cancelled, row.seconds), row.last_run_at)
        for row in connection.execute(query, {"ids": id_document(ids)})
    }


def _present(*sums: dict[int, tuple[Sums, datetime]], of: int) -> Iterable[tuple[Sums, datetime]]:
    return (each[of] for each in sums if of in each)


def _stats(group: ManifestGroup, manifests: int, parts: Sequence[tuple[Sums, datetime]]) -> GroupStats:
    total = sum((part for part, _ in parts), start=Sums())
    return GroupStats(
        group=group,
        manifests=manifests,
        completed=total.completed,
        failed=total.failed,
        cancelled=total.cancelled,
        last_run_at=max((at for _, at in parts), default=None),
    )
