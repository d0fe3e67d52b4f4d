"""Read, list, lock and change manifests (table `manifest`).

Rows are always locked in the order of their ids, so that two batches cannot deadlock.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Boolean, literal_column, select, text, update

from trax.bounds import duration_within_bounds
from trax.clock import format_duration
from trax.records.manifest import Manifest
from trax.records.nouns import ManifestFilter
from trax.records.states import ScheduleType
from trax.store.dialect import among, id_document, ids_of, name_document, rows_of
from trax.store.listing import (
    RecordQuery,
    Search,
    equal_to,
    estimate_index_rows,
    group_id,
    manifest_id,
    shorten,
)
from trax.store.schema import tables, tables_for
from trax.store.schema.manifest import LIVE, RETIRED
from trax.store.schema.metadata import ACTIVE
from trax.store.schema.work_queue import QUEUED
from trax.store.types import SQLITE, parse_json, sql_literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Row, Select


STARTED_BY_ANOTHER = ("dependent", "dormant_dependent")


def get(connection: Connection, external_id: str) -> Manifest | None:
    manifest = tables(connection).manifest
    row = connection.execute(_records(connection).where(manifest.c.external_id == external_id)).one_or_none()
    return _record(row) if row else None


def load_by_names(
    connection: Connection, external_ids: Sequence[str], *, brief: bool = False
) -> list[Manifest]:
    """Load manifests by external id, in this order; missing ones are left out."""
    query = _select_by_names(connection.dialect.name, brief=bool(brief))
    names = name_document("external_id", external_ids)
    by_id = {row.external_id: _record(row) for row in connection.execute(query, {"names": names})}
    return [by_id[external_id] for external_id in external_ids if external_id in by_id]


def load_names(
    connection: Connection,
    manifest_filter: ManifestFilter | None = None,
    *,
    before: str | None = None,
    after: str | None = None,
    limit: int | None = 50,
) -> list[str]:
    """External ids in their order, below `before` and above `after`."""
    wanted = manifest_filter or ManifestFilter()
    return _NAMES.load_list(connection, wanted, before=before, after=after, limit=limit)


def set_enabled(connection: Connection, external_id: str, *, enabled: bool, now: datetime) -> int | None:
    """Enable or disable a manifest; enabling makes it and its dependents due.

    Returns its id; None if it does not exist or is retired.
    """
    manifest = tables(connection).manifest
    is_target = (manifest.c.external_id == external_id) & manifest.c.retired_at.is_(None)
    if enabled:
        itself = manifest.alias("itself")
        target_id = select(itself.c.id).where(itself.c.external_id == external_id).scalar_subquery()
        mark_due(
            connection, lock_where(connection, is_target | (manifest.c.depends_on_id == target_id)), now=now
        )
    statement = (
        update(manifest).where(is_target).values(enabled=enabled, updated_at=now).returning(manifest.c.id)
    )
    return connection.execute(statement).scalar()


def disable_once(connection: Connection, manifest_ids: Sequence[int], *, now: datetime) -> None:
    """Disable the run-once manifests among these whose time has come; the caller has locked the rows."""
    manifest = tables(connection).manifest
    is_over = (manifest.c.schedule_type == sql_literal(ScheduleType.ONCE)) & (manifest.c.scheduled_at <= now)
    statement = update(manifest).where(among(connection, manifest.c.id), is_over)
    connection.execute(statement.values(enabled=False, updated_at=now), {"ids": id_document(manifest_ids)})


def mark_due(connection: Connection, manifest_ids: Sequence[int], *, now: datetime) -> None:
    """Make these manifests due in the manager's next cycle, unless they are retired.

    The caller has locked them in order.
    """
    manifest = tables(connection).manifest
    statement = update(manifest).where(among(connection, manifest.c.id), text(LIVE)).values(next_due_at=now)
    connection.execute(statement, {"ids": id_document(manifest_ids)})


def mark_group_due(connection: Connection, group_id: int, *, now: datetime) -> None:
    manifest = tables(connection).manifest
    mark_due(connection, lock_where(connection, manifest.c.group_id == group_id), now=now)


def load_for_trigger(
    connection: Connection, *, external_id: str | None = None, group: str | None = None, now: datetime
) -> list[Row[Any]]:
    """Lock and load a manifest to trigger, or all manifests of a group that can be triggered.

    The rows are locked first: of two triggers at the same time, the second finds the entry of the first.
    """
    t = tables(connection)
    ids_query = select(t.manifest.c.id).join(t.manifest_group, t.manifest_group.c.id == t.manifest.c.group_id)
    if external_id is not None:
        ids_query = ids_query.where(t.manifest.c.external_id == external_id)
    if group is not None:
        may_start = t.manifest.c.enabled & t.manifest.c.schedule_type.not_in(STARTED_BY_ANOTHER)
        is_live = t.manifest.c.retired_at.is_(None)
        ids_query = ids_query.where(t.manifest_group.c.name == group, may_start, is_live)
    locked = ids_query.order_by(t.manifest.c.id).with_for_update(of=t.manifest, key_share=True)
    ids = list(connection.execute(locked).scalars())
    is_parked = t.work_queue.c.parked.is_not(None)
    could_start = t.work_queue.c.ready | is_parked | (t.work_queue.c.scheduled_at <= now)
    waiting_entry = (
        select(t.work_queue.c.id)
        .where(t.work_queue.c.manifest_id == t.manifest.c.id, text(QUEUED), could_start)
        .order_by(t.work_queue.c.id)
        .limit(1)
        .scalar_subquery()
    )
    query = select(
        t.manifest,
        t.manifest_group.c.priority.label("group_priority"),
        waiting_entry.label("waiting_entry_id"),
    ).join(t.manifest_group, t.manifest_group.c.id == t.manifest.c.group_id)
    query = query.where(among(connection, t.manifest.c.id)).order_by(t.manifest.c.id)
    return list(connection.execute(query, {"ids": id_document(ids)}))


def load_rows(connection: Connection, ids: Sequence[int]) -> list[Row[Any]]:
    """Load the rows of these manifests with the priority of their groups."""
    t = tables(connection)
    query = (
        select(t.manifest, t.manifest_group.c.priority.label("group_priority"))
        .join(t.manifest_group, t.manifest_group.c.id == t.manifest.c.group_id)
        .where(among(connection, t.manifest.c.id))
    )
    return list(connection.execute(query, {"ids": id_document(ids)}))


def load_running_ids(
    connection: Connection, *, external_id: str | None = None, group: str | None = None
) -> list[int]:
    """The ids of the runs in progress of a manifest or a group."""
    t = tables(connection)
    query = select(t.metadata.c.id).where(text("state = 'in_progress'"))
    if external_id is not None:
        query = query.join(t.manifest, t.manifest.c.id == t.metadata.c.manifest_id).where(
            t.manifest.c.external_id == external_id
        )
    if group is not None:
        query = query.join(t.manifest_group, t.manifest_group.c.id == t.metadata.c.group_id).where(
            t.manifest_group.c.name == group
        )
    return list(connection.execute(query).scalars())


def load_ids(connection: Connection, external_ids: Sequence[str]) -> list[int]:
    manifest = tables(connection).manifest
    query = select(manifest.c.id).where(manifest.c.external_id.in_(external_ids))
    return list(connection.execute(query).scalars())


def _records(connection: Connection) -> Select[Any]:
    return _select_records(connection.dialect.name)


@cache
def _select_records(dialect: str) -> Select[Any]:
    t = tables_for(dialect)
    parent = t.manifest.alias("parent")
    return (
        select(
            t.manifest,
            t.manifest_group.c.name.label("group_name"),
            parent.c.external_id.label("parent_external_id"),
        )
        .join(t.manifest_group, t.manifest_group.c.id == t.manifest.c.group_id)
        .outerjoin(parent, parent.c.id == t.manifest.c.depends_on_id)
    )


@cache
def _select_by_names(dialect: str, *, brief: bool) -> Select[Any]:
    manifest = tables_for(dialect).manifest
    wanted = rows_of(dialect, "names", {"external_id": manifest.c.external_id.type})
    records = shorten(_select_records(dialect)) if brief else _select_records(dialect)
    return records.join(wanted, wanted.c.external_id == manifest.c.external_id)


def _record(row: Row[Any]) -> Manifest:
    return Manifest(
        id=row.id,
        external_id=row.external_id,
        train=row.train,
        group=row.group_name,
        schedule=_format_schedule(row),
        schedule_type=ScheduleType(row.schedule_type),
        enabled=row.enabled,
        priority=row.priority,
        max_retries=row.max_retries,
        timeout=None if row.timeout_seconds is None else duration_within_bounds(row.timeout_seconds),
        depends_on=row.parent_external_id,
        input=parse_json(row.input),
        failure_count=row.failure_count,
        last_successful_run=row.last_successful_run,
        next_due_at=row.next_due_at,
        retired_at=row.retired_at,
    )


def _format_schedule(row: Row[Any]) -> str | None:
    """The schedule as short text for a table: `every 1 h 30 min`."""
    match row.schedule_type:
        case ScheduleType.CRON:
            zone = "" if row.time_zone == "UTC" else f" {row.time_zone}"
            return f"{row.cron_expression}{zone}"
        case ScheduleType.INTERVAL:
            return f"every {format_duration(row.interval_seconds)}"
        case ScheduleType.ONCE:
            return f"once at {row.scheduled_at:%Y-%m-%d %H:%M:%S} UTC"
        case _:
            return None


WINDOW: Final = 20_000
"""How many manifests the search for one page reads."""

NAMES_WINDOW: Final = 100_000
"""How many, if only external ids are compared: the index has those."""


def _search(connection: Connection, filters: ManifestFilter) -> Search:
    manifest = tables(connection).manifest
    others = equal_to(manifest, filters, "train", "enabled", "schedule_type")
    window = WINDOW if others else NAMES_WINDOW
    if (part := filters.get("text")) is not None:
        others.append(manifest.c.external_id.icontains(part, autoescape=True))
    search = Search(table=manifest, unindexed=others, key="external_id", window=window)
    if (is_retired := filters.get("retired", False)) is not None:
        search = replace(search, **_narrow_to_retired(connection, is_retired=is_retired))
    if (group := filters.get("group")) is not None:
        search = search.narrow(manifest.c.group_id == group_id(connection, group))
    if (parent := filters.get("depends_on")) is not None:
        search = search.narrow(manifest.c.depends_on_id == manifest_id(connection, parent))
    return search


def _narrow_to_retired(connection: Connection, *, is_retired: bool) -> dict[str, Any]:
    """Use the index of live or of retired manifests."""
    manifest, condition = tables(connection).manifest, RETIRED if is_retired else LIVE
    index = "manifest_retired_idx" if is_retired else "manifest_live_idx"
    return {
        "indexed": (literal_column(f"({condition})", Boolean),),
        "total": lambda: estimate_index_rows(connection, manifest, index, condition),
    }


_NAMES: Final = RecordQuery(
    search=_search,
    records=lambda connection: select(tables(connection).manifest.c.external_id),
    record=lambda row: str(row.external_id),
    ascending=True,
)


class ManifestQuery(RecordQuery[ManifestFilter, Manifest]):
    """Lists of manifests: first their names, which the index has, then the rows of those."""

    def load_list(
        self,
        connection: Connection,
        record_filter: ManifestFilter | None = None,
        *,
        before: Any = None,
        after: Any = None,
        limit: int | None = 50,
        brief: bool = False,
    ) -> list[Manifest]:
        names = load_names(connection, record_filter, before=before, after=after, limit=limit)
        return load_by_names(connection, names, brief=brief) if names else []

    def load_by_keys(
        self,
        connection: Connection,
        search: Search,  # noqa: ARG002 - the keys are names
        keys: Sequence[Any],
        *,
        brief: bool,
    ) -> Mapping[Any, Manifest]:
        found = load_by_names(connection, keys, brief=brief)
        return {manifest.external_id: manifest for manifest in found}


MANIFESTS: Final = ManifestQuery(search=_search, records=_records, record=_record, ascending=True)
page, load_list, count = MANIFESTS.page, MANIFESTS.load_list, MANIFESTS.count


def lock_targets(connection: Connection, external_ids: Sequence[str]) -> dict[str, Row[Any]]:
    """Lock these manifests, then load them, so that of two runs activating one the second sees the first."""
    unlocked = load_targets(connection, external_ids)
    lock(connection, (row.id for row in unlocked.values()))
    return load_targets(connection, external_ids)


def load_targets(connection: Connection, external_ids: Iterable[str]) -> dict[str, Row[Any]]:
    names = name_document("external_id", external_ids)
    rows = connection.execute(_select_targets(connection.dialect.name), {"names": names})
    return {row.external_id: row for row in rows}


@cache
def _select_targets(dialect: str) -> Select[Any]:
    t = tables_for(dialect)
    manifest, parent = t.manifest, t.manifest.alias("parent")
    names = rows_of(dialect, "names", {"external_id": manifest.c.external_id.type})

    def has(table: Any, condition: str) -> Any:
        return select(table.c.id).where(table.c.manifest_id == manifest.c.id, text(condition)).exists()

    return (
        select(
            manifest,
            parent.c.external_id.label("parent"),
            t.manifest_group.c.priority.label("group_priority"),
            has(t.work_queue, QUEUED).label("is_queued"),
            has(t.metadata, ACTIVE).label("is_active"),
            has(t.dead_letter, "status = 'awaiting_intervention'").label("is_awaiting"),
        )
        .join(names, names.c.external_id == manifest.c.external_id)
        .join(t.manifest_group, t.manifest_group.c.id == manifest.c.group_id)
        .outerjoin(parent, parent.c.id == manifest.c.depends_on_id)
    )


def lock(connection: Connection, ids: Iterable[int]) -> None:
    """Lock these manifests until the transaction ends.

    A separate statement: runs and entries must be read with a snapshot taken after the wait, or they are
    older than the manifest. On SQLite the transaction is the lock.
    """
    dialect = connection.dialect.name
    if dialect != SQLITE:
        connection.execute(lock_in_order(dialect), {"ids": id_document(ids)})


def lock_where(connection: Connection, condition: ColumnElement[bool]) -> list[int]:
    """Lock the manifests that match a condition, in the order of their ids; returns the ids."""
    manifest = tables(connection).manifest
    query = select(manifest.c.id).where(condition).order_by(manifest.c.id).with_for_update(of=manifest)
    return list(connection.execute(query).scalars())


@cache
def lock_in_order(dialect: str) -> Select[Any]:
    """Locks manifests in the order of their ids, so that no two transactions wait for each other."""
    manifest = tables_for(dialect).manifest
    wanted = ids_of(dialect)
    return (
        select(manifest.c.id)
        .join(wanted, wanted.c.id == manifest.c.id)
        .order_by(manifest.c.id)
        .with_for_update(of=manifest)
    )
