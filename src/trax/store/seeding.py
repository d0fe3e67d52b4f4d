"""Writing declared manifests: what is new, what changed, who depends on whom, what is retired or renamed."""

from __future__ import annotations

from collections import defaultdict
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import bindparam, case, delete, func, insert, select, text, update

from trax.records.states import QueueStatus
from trax.store.dialect import among, document, id_document, rows_of
from trax.store.schema import tables, tables_for
from trax.store.schema.manifest import LIVE
from trax.store.schema.metadata import ACTIVE
from trax.store.schema.work_queue import QUEUED
from trax.store.types import BigId, Utc, word

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Insert, Row, Select, Table, Update

DECLARED: Final = (
    "train",
    "input",
    "group_id",
    "enabled",
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
"""The columns that code decides."""

PLANNED: Final = ("next_scheduled_run", "next_due_at", "last_scheduled_for")
RETIRED_AT_ONCE: Final = 500


class Dependency(NamedTuple):
    """Who depends on whom, and in which groups they are."""

    child: str
    parent: str
    child_group: str
    parent_group: str
    parent_is_retired: bool


class Belongings(NamedTuple):
    """What there is of a manifest: entries that wait, runs that go on, letters, and who depends on it."""

    queued: int = 0
    active: int = 0
    dead_letters: int = 0
    dependents: tuple[str, ...] = ()


def existing(connection: Connection, external_ids: Iterable[str]) -> dict[str, Row[Any]]:
    wanted = document({"external_id": one} for one in external_ids)
    rows = connection.execute(_existing(connection.dialect.name), {"ids": wanted})
    return {row.external_id: row for row in rows}


def locked(connection: Connection, ids: Iterable[int]) -> dict[str, Row[Any]]:
    """These manifests as they are, and stay until the transaction ends, by their external ids.

    In the order of their ids, as everybody locks them. Whoever only refers to a row may pass.
    """
    manifest = tables(connection).manifest
    query = select(manifest).where(among(connection, manifest.c.id)).order_by(manifest.c.id)
    rows = connection.execute(query.with_for_update(of=manifest, key_share=True), {"ids": id_document(ids)})
    return {row.external_id: row for row in rows}


def add(connection: Connection, rows: Sequence[Mapping[str, Any]], *, now: datetime) -> None:
    if rows:
        connection.execute(_add(connection.dialect.name), {"rows": document(rows), "now": now})


def change(connection: Connection, rows: Sequence[Mapping[str, Any]], *, now: datetime) -> None:
    """Write of each row what it mentions beside its id. What it does not mention stays as it is."""
    alike: defaultdict[tuple[str, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        alike[tuple(sorted(row.keys() - {"id"}))].append(row)
    for names, some in alike.items():
        connection.execute(_change(connection.dialect.name, names), {"rows": document(some), "now": now})


def rename(connection: Connection, names: Mapping[str, str], *, now: datetime) -> None:
    """Give manifests new external ids, by their old ones; their history goes with them."""
    rows = document({"external_id": old, "new": new} for old, new in names.items())
    connection.execute(_rename(connection.dialect.name), {"rows": rows, "now": now})


def link(connection: Connection, parents: Mapping[str, str | None], *, now: datetime) -> None:
    """Make each depend on its parent (None: on nobody). Only what differs is written, and looked at."""
    rows = document({"external_id": child, "parent": parent} for child, parent in parents.items())
    connection.execute(_link(connection.dialect.name), {"rows": rows, "now": now})


def dependencies(connection: Connection) -> list[Dependency]:
    """Who in use depends on whom."""
    t = tables(connection)
    child, parent = t.manifest.alias("child"), t.manifest.alias("parent")
    groups, parents_groups = t.manifest_group.alias("groups"), t.manifest_group.alias("parents_groups")
    query = (
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
    return [Dependency(*row) for row in connection.execute(query)]


def undeclared(
    connection: Connection, keep: Iterable[str], *, app: str, batch: str | None = None
) -> dict[str, int]:
    """The manifests that this app declared (or those of one batch) and that are not among these.

    By their external ids, in the order of their ids; those that are retired already are left out.
    """
    manifest = tables(connection).manifest
    given = rows_of(connection.dialect.name, "keep", {"external_id": manifest.c.external_id.type})
    belongs = text("origin = 'declared'") if batch is None else manifest.c.batch == batch
    query = select(manifest.c.external_id, manifest.c.id).where(
        belongs,
        manifest.c.app == app,
        text(LIVE),
        manifest.c.external_id.not_in(select(given.c.external_id)),
    )
    kept = document({"external_id": one} for one in keep)
    rows = connection.execute(query.order_by(manifest.c.id), {"keep": kept})
    return {row.external_id: row.id for row in rows}


def belongings(connection: Connection, names: Mapping[str, int]) -> dict[str, Belongings]:
    """What there is of these manifests, given by their external ids."""
    t = tables(connection)
    external_ids = {manifest_id: name for name, manifest_id in names.items()}
    given = {"ids": id_document(external_ids)}

    def counts(table: Table, condition: str) -> dict[int, int]:
        its = table.c.manifest_id
        query = select(its, func.count()).where(among(connection, its), text(condition)).group_by(its)
        return {row[0]: row[1] for row in connection.execute(query, given)}

    parent = t.manifest.c.depends_on_id
    children = select(parent, t.manifest.c.external_id).where(among(connection, parent), text(LIVE))
    dependents: defaultdict[int, list[str]] = defaultdict(list)
    for manifest_id, name in connection.execute(children.order_by(t.manifest.c.external_id), given):
        dependents[manifest_id].append(name)
    queued, active = counts(t.work_queue, QUEUED), counts(t.metadata, ACTIVE)
    letters = counts(t.dead_letter, "status = 'awaiting_intervention'")
    return {
        name: Belongings(
            queued.get(one, 0), active.get(one, 0), letters.get(one, 0), tuple(dependents.get(one, ()))
        )
        for one, name in external_ids.items()
    }


def retire(connection: Connection, ids: Sequence[int], *, now: datetime) -> int:
    """Retire manifests and withdraw their entries that wait; returns how many entries that were.

    Whoever writes an entry holds its manifest's row. So what they wrote while we waited for the row is there
    to be withdrawn once it is ours, and whoever comes later finds the manifest retired. What has passed the
    gate goes on. The gate, which only refers to the row, may pass: the entry it holds is withdrawn or let in,
    never both.
    """
    t, withdrawn = tables(connection), 0
    manifest = t.manifest.c
    has_failed = (manifest.failure_count > 0) & (manifest.failure_count >= manifest.max_retries)
    gave_up = manifest.gave_up_reason.is_not(None) | has_failed  # the look at it writes its dead letter
    for start in range(0, len(ids), RETIRED_AT_ONCE):
        some = ids[start : start + RETIRED_AT_ONCE]
        locked(connection, some)
        retiring = {
            "retired_at": now,
            "next_due_at": case((gave_up, manifest.next_due_at)),
            "updated_at": now,
        }
        connection.execute(update(t.manifest).where(manifest.id.in_(some), text(LIVE)).values(retiring))
        withdrawing = (
            update(t.work_queue)
            .where(t.work_queue.c.manifest_id.in_(some), text(QUEUED))
            .values(status=word(QueueStatus.CANCELLED))
        )
        withdrawn += connection.execute(withdrawing).rowcount
    return withdrawn


def delete_empty_groups(connection: Connection, keep: Iterable[str]) -> int:
    """Delete groups that code does not name and that hold no manifest, no queued entry and no active run.

    Those of retired manifests and of waiting dead letters stay.
    """
    group = tables(connection).manifest_group
    # One that the open transaction of a caller has just asked for is locked, and not waited for.
    empty = select(group.c.id).where(*_is_empty(connection)).with_for_update(skip_locked=True)
    statement = delete(group).where(group.c.id.in_(empty))
    return connection.execute(statement, _kept(keep)).rowcount


def empty_groups(connection: Connection, keep: Iterable[str]) -> list[str]:
    """The groups that would be deleted."""
    group = tables(connection).manifest_group
    query = select(group.c.name).where(*_is_empty(connection)).order_by(group.c.name)
    return list(connection.execute(query, _kept(keep)).scalars())


def _is_empty(connection: Connection) -> list[ColumnElement[bool]]:
    t = tables(connection)
    group = t.manifest_group
    named = rows_of(connection.dialect.name, "keep", {"name": group.c.name.type})
    inside = (
        select(t.manifest.c.id).where(t.manifest.c.group_id == group.c.id),
        *(
            select(table.c.id).where(table.c.group_id == group.c.id, text(condition))
            for table, condition in (
                (t.work_queue, QUEUED),
                (t.metadata, ACTIVE),
                (t.dead_letter, "status = 'awaiting_intervention'"),
            )
        ),
    )
    return [group.c.name.not_in(select(named.c.name)), *(~thing.exists() for thing in inside)]


def _kept(names: Iterable[str]) -> dict[str, str]:
    return {"keep": document({"name": name} for name in names)}


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


@lru_cache(maxsize=64)
def _change(dialect: str, names: tuple[str, ...]) -> Update:
    manifest = tables_for(dialect).manifest
    given = rows_of(dialect, "rows", {"id": BigId} | {name: manifest.c[name].type for name in names})
    changed: dict[str, Any] = {name: given.c[name] for name in names}
    changed["updated_at"] = bindparam("now", type_=Utc)
    return update(manifest).where(manifest.c.id == given.c.id).values(changed)


@cache
def _rename(dialect: str) -> Update:
    manifest = tables_for(dialect).manifest
    name = manifest.c.external_id.type
    given = rows_of(dialect, "rows", {"external_id": name, "new": name})
    return (
        update(manifest)
        .where(manifest.c.external_id == given.c.external_id)
        .values(external_id=given.c.new, updated_at=bindparam("now", type_=Utc))
    )


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
