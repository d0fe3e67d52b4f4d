"""Write declared manifests: insert, update, rename, link and retire them."""

from __future__ import annotations

from collections import defaultdict
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import bindparam, case, func, insert, select, text, update

from trax.records.states import QueueStatus
from trax.store.dialect import among, document, documents, id_document, rows_of
from trax.store.schema import tables, tables_for
from trax.store.schema.manifest import LIVE
from trax.store.schema.metadata import ACTIVE
from trax.store.schema.work_queue import QUEUED
from trax.store.types import BigId, Utc, sql_literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Insert, Row, Select, Table, Update

DECLARED_COLUMNS: Final = (
    "train",
    "input",
    "group_id",
    "enabled",
    "declared_enabled",
    "priority",
    "origin",
    "batch",
    "app",
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
"""Columns that are set from code."""

PLANNED_COLUMNS: Final = ("next_scheduled_run", "next_due_at", "last_scheduled_for")
RETIRE_BATCH: Final = 500


class Dependency(NamedTuple):
    """A dependency between two manifests, with their groups."""

    child: str
    parent: str
    child_group: str
    parent_group: str
    parent_is_retired: bool


class ManifestUsage(NamedTuple):
    """What a manifest has: queued entries, active runs, open dead letters, and dependents."""

    queued: int = 0
    active: int = 0
    dead_letters: int = 0
    dependents: tuple[str, ...] = ()


def load_existing(connection: Connection, external_ids: Iterable[str]) -> dict[str, Row[Any]]:
    parameter = document({"external_id": external_id} for external_id in external_ids)
    rows = connection.execute(_select_existing(connection.dialect.name), {"ids": parameter})
    return {row.external_id: row for row in rows}


def load_for_update(connection: Connection, ids: Iterable[int]) -> dict[str, Row[Any]]:
    """Lock manifests until the transaction ends. Returns their rows by external id.

    Locks are taken in the order of ids, as everywhere. Foreign key checks on the rows do not wait.
    """
    manifest = tables(connection).manifest
    query = select(manifest).where(among(connection, manifest.c.id)).order_by(manifest.c.id)
    rows = connection.execute(query.with_for_update(of=manifest, key_share=True), {"ids": id_document(ids)})
    return {row.external_id: row for row in rows}


def add(connection: Connection, rows: Sequence[Mapping[str, Any]], *, now: datetime) -> None:
    for part in documents(rows) if rows else ():
        connection.execute(_add(connection.dialect.name), {"rows": part, "now": now})


def change(connection: Connection, rows: Sequence[Mapping[str, Any]], *, now: datetime) -> None:
    """Update each row by id with the columns it has. Other columns do not change."""
    by_columns: defaultdict[tuple[str, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_columns[tuple(sorted(row.keys() - {"id"}))].append(row)
    for names, group in by_columns.items():
        for part in documents(group):
            connection.execute(_change(connection.dialect.name, names), {"rows": part, "now": now})


def rename(connection: Connection, names: Mapping[str, str], *, now: datetime) -> None:
    """Change external ids (old to new). The history stays with the manifest."""
    rows = document({"external_id": old, "new": new} for old, new in names.items())
    connection.execute(_rename(connection.dialect.name), {"rows": rows, "now": now})


def link(connection: Connection, parents: Mapping[str, str | None], *, now: datetime) -> None:
    """Set the parent of each manifest (None: no parent). Only changed manifests are written and made due."""
    rows = document({"external_id": child, "parent": parent} for child, parent in parents.items())
    connection.execute(_link(connection.dialect.name), {"rows": rows, "now": now})


def dependencies(connection: Connection) -> list[Dependency]:
    """Load the dependencies of all manifests that are not retired."""
    return [Dependency(*row) for row in connection.execute(_select_dependencies(connection.dialect.name))]


def find_undeclared(
    connection: Connection, keep: Iterable[str], *, app: str, batch: str | None = None
) -> dict[str, int]:
    """Find the live manifests of this app (or of one batch) that are not in `keep`.

    Returns external ids with ids, in the order of ids.
    """
    manifest = tables(connection).manifest
    kept_rows = rows_of(connection.dialect.name, "keep", {"external_id": manifest.c.external_id.type})
    belongs = text("origin = 'declared'") if batch is None else manifest.c.batch == batch
    query = select(manifest.c.external_id, manifest.c.id).where(
        belongs,
        manifest.c.app == app,
        text(LIVE),
        manifest.c.external_id.not_in(select(kept_rows.c.external_id)),
    )
    kept = document({"external_id": external_id} for external_id in keep)
    rows = connection.execute(query.order_by(manifest.c.id), {"keep": kept})
    return {row.external_id: row.id for row in rows}


def count_usage(connection: Connection, names: Mapping[str, int]) -> dict[str, ManifestUsage]:
    """Load the usage of manifests, given and returned by external id."""
    t = tables(connection)
    external_ids = {manifest_id: name for name, manifest_id in names.items()}
    parameters = {"ids": id_document(external_ids)}

    def counts(table: Table, condition: str) -> dict[int, int]:
        column = table.c.manifest_id
        query = (
            select(column, func.count()).where(among(connection, column), text(condition)).group_by(column)
        )
        return {row[0]: row[1] for row in connection.execute(query, parameters)}

    parent = t.manifest.c.depends_on_id
    children = select(parent, t.manifest.c.external_id).where(among(connection, parent), text(LIVE))
    dependents: defaultdict[int, list[str]] = defaultdict(list)
    for manifest_id, name in connection.execute(children.order_by(t.manifest.c.external_id), parameters):
        dependents[manifest_id].append(name)
    queued, active = counts(t.work_queue, QUEUED), counts(t.metadata, ACTIVE)
    letters = counts(t.dead_letter, "status = 'awaiting_intervention'")
    return {
        name: ManifestUsage(
            queued.get(one, 0), active.get(one, 0), letters.get(one, 0), tuple(dependents.get(one, ()))
        )
        for one, name in external_ids.items()
    }


def retire(connection: Connection, ids: Sequence[int], *, now: datetime) -> int:
    """Retire manifests and cancel their queued entries. Returns how many entries were cancelled.

    A transaction that writes an entry locks its manifest. An entry written while this function waits for the
    lock is therefore visible here and cancelled; a later writer finds the manifest retired. Admitted runs
    continue. The dispatcher does not wait for the lock: an entry is either cancelled or admitted, never both.
    """
    t, cancelled = tables(connection), 0
    manifest = t.manifest.c
    has_failed = (manifest.failure_count > 0) & (manifest.failure_count >= manifest.max_retries)
    # A manifest that gave up stays due: the next cycle writes its dead letter.
    gave_up = manifest.gave_up_reason.is_not(None) | has_failed
    for start in range(0, len(ids), RETIRE_BATCH):
        batch = ids[start : start + RETIRE_BATCH]
        load_for_update(connection, batch)
        values = {
            "retired_at": now,
            "next_due_at": case((gave_up, manifest.next_due_at)),
            "updated_at": now,
        }
        connection.execute(update(t.manifest).where(manifest.id.in_(batch), text(LIVE)).values(values))
        cancel = (
            update(t.work_queue)
            .where(t.work_queue.c.manifest_id.in_(batch), text(QUEUED))
            .values(status=sql_literal(QueueStatus.CANCELLED))
        )
        cancelled += connection.execute(cancel).rowcount
    return cancelled


@cache
def _select_dependencies(dialect: str) -> Select[Any, Any, Any, Any, bool]:
    t = tables_for(dialect)
    child, parent = t.manifest.alias("child"), t.manifest.alias("parent")
    groups, parents_groups = t.manifest_group.alias("groups"), t.manifest_group.alias("parents_groups")
    return (
        select(
            child.c.external_id.label("child"),
            parent.c.external_id.label("parent"),
            groups.c.name.label("child_group"),
            parents_groups.c.name.label("parent_group"),
            parent.c.retired_at.is_not(None),
        )
        .join(parent, parent.c.id == child.c.depends_on_id)
        .join(groups, groups.c.id == child.c.group_id)
        .join(parents_groups, parents_groups.c.id == parent.c.group_id)
        .where(child.c.retired_at.is_(None))
    )


@cache
def _select_existing(dialect: str) -> Select[Any]:
    manifest = tables_for(dialect).manifest
    ids = rows_of(dialect, "ids", {"external_id": manifest.c.external_id.type})
    return select(manifest).join(ids, ids.c.external_id == manifest.c.external_id)


@cache
def _add(dialect: str) -> Insert:
    manifest = tables_for(dialect).manifest
    names = ("external_id", *DECLARED_COLUMNS, *PLANNED_COLUMNS)
    rows = rows_of(dialect, "rows", {name: manifest.c[name].type for name in names})
    now = bindparam("now", type_=Utc)
    columns: dict[str, Any] = {name: rows.c[name] for name in names} | {"created_at": now, "updated_at": now}
    return insert(manifest).from_select(list(columns), select(*columns.values()))


@lru_cache(maxsize=64)
def _change(dialect: str, names: tuple[str, ...]) -> Update:
    manifest = tables_for(dialect).manifest
    rows = rows_of(dialect, "rows", {"id": BigId} | {name: manifest.c[name].type for name in names})
    values: dict[str, Any] = {name: rows.c[name] for name in names}
    values["updated_at"] = bindparam("now", type_=Utc)
    return update(manifest).where(manifest.c.id == rows.c.id).values(values)


@cache
def _rename(dialect: str) -> Update:
    manifest = tables_for(dialect).manifest
    name = manifest.c.external_id.type
    rows = rows_of(dialect, "rows", {"external_id": name, "new": name})
    return (
        update(manifest)
        .where(manifest.c.external_id == rows.c.external_id)
        .values(external_id=rows.c.new, updated_at=bindparam("now", type_=Utc))
    )


@cache
def _link(dialect: str) -> Update:
    manifest = tables_for(dialect).manifest
    parent = manifest.alias("parent")
    name = manifest.c.external_id.type
    rows = rows_of(dialect, "rows", {"external_id": name, "parent": name})
    parent_id = select(parent.c.id).where(parent.c.external_id == rows.c.parent).scalar_subquery()
    now = bindparam("now", type_=Utc)
    return (
        update(manifest)
        .where(
            manifest.c.external_id == rows.c.external_id,
            func.coalesce(manifest.c.depends_on_id, 0) != func.coalesce(parent_id, 0),
        )
        .values(depends_on_id=parent_id, next_due_at=now, updated_at=now)
    )
