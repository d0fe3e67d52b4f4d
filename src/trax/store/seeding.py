"""Writing declared manifests: what is new, what changed, who depends on whom, what is declared no longer."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import bindparam, delete, func, insert, select, text, update

from trax.store.dialect import among, document, id_document, ids_of, rows_of
from trax.store.schema import tables, tables_for
from trax.store.schema.metadata import ACTIVE
from trax.store.schema.work_queue import QUEUED
from trax.store.types import BigId, Utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Insert, Row, Select, Update

DECLARED: Final = (
    "train",
    "input",
    "group_id",
    "enabled",
    "priority",
    "origin",
    "batch",
    "schedule_type",
    "cron_expression",
    "time_zone",
    "interval_seconds",
    "anchored",
    "scheduled_at",
    "variance_seconds",
    "exclusions",
    "misfire_policy",
    "misfire_limit",
    "misfire_threshold_seconds",
    "max_instances",
    "max_retries",
    "retry",
    "timeout_seconds",
)
"""The columns that code decides."""

PLANNED: Final = ("next_scheduled_run", "next_due_at")
PRUNED_AT_ONCE: Final = 500


def existing(connection: Connection, external_ids: Iterable[str]) -> dict[str, Row[Any]]:
    wanted = document({"external_id": one} for one in external_ids)
    rows = connection.execute(_existing(connection.dialect.name), {"ids": wanted})
    return {row.external_id: row for row in rows}


def add(connection: Connection, rows: Sequence[Mapping[str, Any]], *, now: datetime) -> None:
    if rows:
        connection.execute(_add(connection.dialect.name), {"rows": document(rows), "now": now})


def change(connection: Connection, rows: Sequence[Mapping[str, Any]], *, now: datetime) -> None:
    if rows:
        connection.execute(_change(connection.dialect.name), {"rows": document(rows), "now": now})


def link(connection: Connection, parents: Mapping[str, str | None], *, now: datetime) -> None:
    """Make each depend on its parent (None: on nobody). Only what differs is written, and looked at."""
    rows = document({"external_id": child, "parent": parent} for child, parent in parents.items())
    connection.execute(_link(connection.dialect.name), {"rows": rows, "now": now})


def dependencies(connection: Connection) -> list[tuple[str, str, str, str]]:
    """Who depends on whom, and in which groups they are: (child, parent, child_group, parent_group)."""
    t = tables(connection)
    child, parent = t.manifest.alias("child"), t.manifest.alias("parent")
    groups, parents_groups = t.manifest_group.alias("groups"), t.manifest_group.alias("parents_groups")
    query = (
        select(
            child.c.external_id.label("child"),
            parent.c.external_id.label("parent"),
            groups.c.name.label("child_group"),
            parents_groups.c.name.label("parent_group"),
        )
        .join(parent, parent.c.id == child.c.depends_on_id)
        .join(groups, groups.c.id == child.c.group_id)
        .join(parents_groups, parents_groups.c.id == parent.c.group_id)
    )
    return [tuple(row) for row in connection.execute(query)]


def undeclared(connection: Connection, keep: Iterable[str], *, batch: str | None = None) -> list[int]:
    """The declared manifests (or those of one batch) that are not among these."""
    manifest = tables(connection).manifest
    given = rows_of(connection.dialect.name, "keep", {"external_id": manifest.c.external_id.type})
    belongs = text("origin = 'declared'") if batch is None else manifest.c.batch == batch
    query = select(manifest.c.id).where(belongs, manifest.c.external_id.not_in(select(given.c.external_id)))
    kept = document({"external_id": one} for one in keep)
    return list(connection.execute(query.order_by(manifest.c.id), {"keep": kept}).scalars())


def names_of(connection: Connection, ids: Sequence[int]) -> list[str]:
    manifest = tables(connection).manifest
    query = select(manifest.c.external_id).where(among(connection, manifest.c.id))
    given = {"ids": id_document(ids)}
    return list(connection.execute(query.order_by(manifest.c.external_id), given).scalars())


def delete_manifests(connection: Connection, ids: Sequence[int]) -> None:
    """Delete manifests with all that belongs to them; whoever depends on them is left without a parent.

    Whoever writes an entry holds its manifest's row. So what they wrote while we waited for the row is there
    to be deleted once it is ours, and whoever comes later finds no manifest to write for. Runs come before
    manifests, as they do when a run ends.
    """
    manifest = tables(connection).manifest
    for start in range(0, len(ids), PRUNED_AT_ONCE):
        some = ids[start : start + PRUNED_AT_ONCE]
        rows = select(manifest.c.id).where(manifest.c.id.in_(some)).order_by(manifest.c.id)
        _delete_belongings(connection, some)
        # The gate, which only refers to the row, may pass: it may hold an entry that we are about to delete.
        connection.execute(rows.with_for_update(of=manifest, key_share=True))
        _delete_belongings(connection, some)
        connection.execute(delete(manifest).where(manifest.c.id.in_(some)))


def _delete_belongings(connection: Connection, manifest_ids: Sequence[int]) -> None:
    t = tables(connection)
    for table in (t.work_queue, t.dead_letter, t.metadata):
        connection.execute(delete(table).where(table.c.manifest_id.in_(manifest_ids)))


def delete_empty_groups(connection: Connection, keep: Iterable[str]) -> int:
    """Delete groups that code does not name and that hold no manifest, no queued entry and no active run."""
    statement = delete(tables(connection).manifest_group).where(*_is_empty(connection))
    return connection.execute(statement, _kept(keep)).rowcount


def empty_groups(connection: Connection, keep: Iterable[str], *, besides: Iterable[int] = ()) -> list[str]:
    """The groups that would be deleted, once these manifests are gone with all that belongs to them."""
    group = tables(connection).manifest_group
    query = select(group.c.name).where(*_is_empty(connection)).order_by(group.c.name)
    return list(connection.execute(query, _kept(keep, besides)).scalars())


def _is_empty(connection: Connection) -> list[ColumnElement[bool]]:
    t = tables(connection)
    group = t.manifest_group
    named = rows_of(connection.dialect.name, "keep", {"name": group.c.name.type})
    gone = select(ids_of(connection.dialect.name, "gone").c.id)
    inside = (
        select(t.manifest.c.id).where(t.manifest.c.group_id == group.c.id, t.manifest.c.id.not_in(gone)),
        *(
            select(table.c.id).where(
                table.c.group_id == group.c.id,
                text(condition),
                func.coalesce(table.c.manifest_id, 0).not_in(gone),
            )
            for table, condition in ((t.work_queue, QUEUED), (t.metadata, ACTIVE))
        ),
    )
    return [group.c.name.not_in(select(named.c.name)), *(~thing.exists() for thing in inside)]


def _kept(names: Iterable[str], gone: Iterable[int] = ()) -> dict[str, str]:
    return {"keep": document({"name": name} for name in names), "gone": id_document(gone)}


@cache
def _existing(dialect: str) -> Select[Any]:
    manifest = tables_for(dialect).manifest
    given = rows_of(dialect, "ids", {"external_id": manifest.c.external_id.type})
    return select(manifest).join(given, given.c.external_id == manifest.c.external_id)


@cache
def _add(dialect: str) -> Insert:
    manifest = tables_for(dialect).manifest
    names = ("external_id", *DECLARED, *PLANNED)
    given = rows_of(dialect, "rows", {name: manifest.c[name].type for name in names})
    now = bindparam("now", type_=Utc)
    columns: dict[str, Any] = {name: given.c[name] for name in names} | {"created_at": now, "updated_at": now}
    return insert(manifest).from_select(list(columns), select(*columns.values()))


@cache
def _change(dialect: str) -> Update:
    manifest = tables_for(dialect).manifest
    names = (*DECLARED, *PLANNED)
    given = rows_of(dialect, "rows", {"id": BigId} | {name: manifest.c[name].type for name in names})
    changed: dict[str, Any] = {name: given.c[name] for name in names}
    changed["updated_at"] = bindparam("now", type_=Utc)
    return update(manifest).where(manifest.c.id == given.c.id).values(changed)


@cache
def _link(dialect: str) -> Update:
    manifest = tables_for(dialect).manifest
    parent = manifest.alias("parent")
    name = manifest.c.external_id.type
    given = rows_of(dialect, "rows", {"external_id": name, "parent": name})
    parent_id = select(parent.c.id).where(parent.c.external_id == given.c.parent).scalar_subquery()
    now = bindparam("now", type_=Utc)
    return (
        update(manifest)
        .where(
            manifest.c.external_id == given.c.external_id,
            func.coalesce(manifest.c.depends_on_id, 0) != func.coalesce(parent_id, 0),
        )
        .values(depends_on_id=parent_id, next_due_at=now, updated_at=now)
    )
