"""The manifests' rows, as people and callers see them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import select, text, update

from trax.records.manifest import Manifest
from trax.records.states import ScheduleType
from trax.store.dialect import among, id_document, name_document, rows_of
from trax.store.json import parsed
from trax.store.lists import briefly
from trax.store.manifest_locks import lock_those
from trax.store.schema import tables
from trax.store.schema.manifest import LIVE
from trax.store.schema.work_queue import QUEUED
from trax.store.types import word

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row, Select

STARTED_BY_ANOTHER = ("dependent", "dormant_dependent")


def get(connection: Connection, external_id: str) -> Manifest | None:
    manifest = tables(connection).manifest
    row = connection.execute(_records(connection).where(manifest.c.external_id == external_id)).one_or_none()
    return _record(row) if row else None


def named(connection: Connection, external_ids: Sequence[str], *, brief: bool = False) -> list[Manifest]:
    """These manifests, in the order asked for."""
    manifest = tables(connection).manifest
    given = rows_of(connection.dialect.name, "names", {"external_id": manifest.c.external_id.type})
    records = briefly(_records(connection)) if brief else _records(connection)
    query = records.join(given, given.c.external_id == manifest.c.external_id)
    names = name_document("external_id", external_ids)
    found = {row.external_id: _record(row) for row in connection.execute(query, {"names": names})}
    return [found[one] for one in external_ids if one in found]


def listed(
    connection: Connection,
    *,
    group: str | None = None,
    train: str | None = None,
    enabled: bool | None = None,
    schedule_type: ScheduleType | None = None,
    retired: bool | None = False,
    after: str | None = None,
    limit: int = 50,
) -> list[Manifest]:
    """Manifests in the order of their external ids; `after` is that of the last one already seen."""
    t = tables(connection)
    wanted = {
        t.manifest_group.c.name: group,
        t.manifest.c.train: train,
        t.manifest.c.enabled: enabled,
        t.manifest.c.schedule_type: schedule_type,
    }
    query = _records(connection).order_by(t.manifest.c.external_id).limit(limit)
    query = query.where(*(column == value for column, value in wanted.items() if value is not None))
    if retired is not None:
        since = t.manifest.c.retired_at
        query = query.where(since.is_not(None) if retired else since.is_(None))
    if after is not None:
        query = query.where(t.manifest.c.external_id > after)
    return [_record(row) for row in connection.execute(query)]


def set_enabled(connection: Connection, external_id: str, *, enabled: bool, now: datetime) -> int | None:
    """Switch a manifest on or off. Once on, it and whoever depends on it are looked at.

    Returns its id; None: there is none of this name, or it is retired.
    """
    manifest = tables(connection).manifest
    is_it = (manifest.c.external_id == external_id) & manifest.c.retired_at.is_(None)
    if enabled:
        itself = manifest.alias("itself")
        its_id = select(itself.c.id).where(itself.c.external_id == external_id).scalar_subquery()
        look_at(connection, lock_those(connection, is_it | (manifest.c.depends_on_id == its_id)), now=now)
    statement = update(manifest).where(is_it).values(enabled=enabled, updated_at=now).returning(manifest.c.id)
    return connection.execute(statement).scalar()


def disable_once(connection: Connection, manifest_ids: Sequence[int], *, now: datetime) -> None:
    """Switch off those of these that were to run once and whose moment has come; their rows are locked."""
    manifest = tables(connection).manifest
    is_over = (manifest.c.schedule_type == word(ScheduleType.ONCE)) & (manifest.c.scheduled_at <= now)
    statement = update(manifest).where(among(connection, manifest.c.id), is_over)
    connection.execute(statement.values(enabled=False, updated_at=now), {"ids": id_document(manifest_ids)})


def look_at(connection: Connection, manifest_ids: Sequence[int], *, now: datetime) -> None:
    """Have the manager look at these in its next cycle, unless they are retired.

    Whoever calls this has locked them in order.
    """
    manifest = tables(connection).manifest
    statement = update(manifest).where(among(connection, manifest.c.id), text(LIVE)).values(next_due_at=now)
    connection.execute(statement, {"ids": id_document(manifest_ids)})


def look_at_group(connection: Connection, group_id: int, *, now: datetime) -> None:
    manifest = tables(connection).manifest
    look_at(connection, lock_those(connection, manifest.c.group_id == group_id), now=now)


def to_trigger(
    connection: Connection, *, external_id: str | None = None, group: str | None = None, now: datetime
) -> list[Row[Any]]:
    """What it takes to start a manifest by hand, or all of a group that may be started that way.

    Their rows are locked first: of two who start one in the same moment, the second finds the first's entry.
    """
    t = tables(connection)
    wanted = select(t.manifest.c.id).join(t.manifest_group, t.manifest_group.c.id == t.manifest.c.group_id)
    if external_id is not None:
        wanted = wanted.where(t.manifest.c.external_id == external_id)
    if group is not None:
        may_start = t.manifest.c.enabled & t.manifest.c.schedule_type.not_in(STARTED_BY_ANOTHER)
        is_live = t.manifest.c.retired_at.is_(None)
        wanted = wanted.where(t.manifest_group.c.name == group, may_start, is_live)
    locked = wanted.order_by(t.manifest.c.id).with_for_update(of=t.manifest, key_share=True)
    ids = list(connection.execute(locked).scalars())
    is_parked = t.work_queue.c.parked.is_not(None)
    could_start = t.work_queue.c.ready | is_parked | (t.work_queue.c.scheduled_at <= now)
    waiting = (
        select(t.work_queue.c.id)
        .where(t.work_queue.c.manifest_id == t.manifest.c.id, text(QUEUED), could_start)
        .order_by(t.work_queue.c.id)
        .limit(1)
        .scalar_subquery()
    )
    query = select(
        t.manifest, t.manifest_group.c.priority.label("group_priority"), waiting.label("waiting_entry_id")
    ).join(t.manifest_group, t.manifest_group.c.id == t.manifest.c.group_id)
    query = query.where(among(connection, t.manifest.c.id)).order_by(t.manifest.c.id)
    return list(connection.execute(query, {"ids": id_document(ids)}))


def rows_of_ids(connection: Connection, ids: Sequence[int]) -> list[Row[Any]]:
    """The rows of these manifests with the priority of their groups."""
    t = tables(connection)
    query = (
        select(t.manifest, t.manifest_group.c.priority.label("group_priority"))
        .join(t.manifest_group, t.manifest_group.c.id == t.manifest.c.group_id)
        .where(among(connection, t.manifest.c.id))
    )
    return list(connection.execute(query, {"ids": id_document(ids)}))


def running(connection: Connection, *, external_id: str | None = None, group: str | None = None) -> list[int]:
    """The runs in progress of a manifest, or of a group."""
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


def ids_of(connection: Connection, external_ids: Sequence[str]) -> list[int]:
    manifest = tables(connection).manifest
    query = select(manifest.c.id).where(manifest.c.external_id.in_(external_ids))
    return list(connection.execute(query).scalars())


def _records(connection: Connection) -> Select[Any]:
    t = tables(connection)
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


def _record(row: Row[Any]) -> Manifest:
    return Manifest(
        id=row.id,
        external_id=row.external_id,
        train=row.train,
        group=row.group_name,
        schedule=_schedule(row),
        schedule_type=ScheduleType(row.schedule_type),
        enabled=row.enabled,
        priority=row.priority,
        max_retries=row.max_retries,
        timeout=None if row.timeout_seconds is None else timedelta(seconds=row.timeout_seconds),
        depends_on=row.parent_external_id,
        input=parsed(row.input),
        failure_count=row.failure_count,
        last_successful_run=row.last_successful_run,
        next_due_at=row.next_due_at,
        retired_at=row.retired_at,
    )


def _schedule(row: Row[Any]) -> str | None:
    """The schedule in words short enough for a table."""
    match row.schedule_type:
        case ScheduleType.CRON:
            zone = "" if row.time_zone == "UTC" else f" {row.time_zone}"
            return f"{row.cron_expression}{zone}"
        case ScheduleType.INTERVAL:
            return f"every {timedelta(seconds=row.interval_seconds)}"
        case ScheduleType.ONCE:
            return f"once at {row.scheduled_at:%Y-%m-%d %H:%M:%S} UTC"
        case _:
            return None
