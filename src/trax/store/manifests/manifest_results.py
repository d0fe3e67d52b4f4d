"""Apply the result of a run to its manifest, and make its dependents due."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, select, text, union, update

from trax.records.result import LockedManifest
from trax.store.dialect import document, id_document, ids_of, rows_of
from trax.store.manifests.manifest_due import timing_of
from trax.store.manifests.manifest_rows import lock
from trax.store.schema import tables_for
from trax.store.schema.manifest import LIVE
from trax.store.types import BigId, Utc, storable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import Connection, Row, Select, Update

    from trax.records.result import ManifestChange

RESULT_COLUMNS = (
    "enabled",
    "failure_count",
    "lifetime_failures",
    "gave_up_reason",
    "failed_metadata_id",
    "retry_at",
    "attempt_cancelled",
    "last_successful_run",
    "next_scheduled_run",
    "plan_after",
    "next_due_at",
)
RESET_VALUES = {
    "failure_count": 0,
    "lifetime_failures": 0,
    "gave_up_reason": None,
    "failed_metadata_id": None,
    "retry_at": None,
    "attempt_cancelled": False,
}


def lock_with_dependents(
    connection: Connection, ids: Iterable[int], *, succeeded: Iterable[int], default_threshold: timedelta
) -> list[LockedManifest]:
    """Lock these manifests and the dependents of those that succeeded; returns the former.

    All in one statement and in the order of their ids, so that two batches cannot deadlock.
    """
    ids = set(ids)
    parameters = {"ids": id_document(ids), "parents": id_document(set(succeeded))}
    rows = connection.execute(_lock_with_dependents(connection.dialect.name), parameters)
    return [_build_locked(row, default_threshold) for row in rows if row.id in ids]


def write(connection: Connection, changes: Sequence[ManifestChange]) -> None:
    if changes:
        rows = document(
            asdict(change) | {"gave_up_reason": storable(change.gave_up_reason)} for change in changes
        )
        connection.execute(_write(connection.dialect.name), {"changes": rows})


def reset_failures(connection: Connection, ids: Iterable[int]) -> None:
    """Reset the failure counts, after an operator has resolved the failures."""
    ids = set(ids)
    lock(connection, ids)
    connection.execute(_reset_failures(connection.dialect.name), {"ids": id_document(ids)})


def mark_dependents_due(connection: Connection, parent_ids: Iterable[int], *, now: datetime) -> None:
    """Make the dependents of these manifests due now."""
    parents = id_document(set(parent_ids))
    connection.execute(_mark_dependents_due(connection.dialect.name), {"ids": parents, "now": now})


@cache
def _lock_with_dependents(dialect: str) -> Select[Any]:
    manifest = tables_for(dialect).manifest
    dependent = manifest.alias("dependent")
    finished = ids_of(dialect)
    parents = ids_of(dialect, "parents")
    dependents = select(dependent.c.id).join(parents, parents.c.id == dependent.c.depends_on_id)
    wanted = union(select(finished.c.id), dependents).subquery("wanted")
    return (
        select(manifest)
        .join(wanted, wanted.c.id == manifest.c.id)
        .order_by(manifest.c.id)
        .with_for_update(of=manifest)
    )


def _build_locked(row: Row[Any], default_threshold: timedelta) -> LockedManifest:
    return LockedManifest(
        id=row.id,
        enabled=row.enabled,
        retry=row.retry,
        failure_count=row.failure_count,
        lifetime_failures=row.lifetime_failures,
        gave_up_reason=row.gave_up_reason,
        failed_metadata_id=row.failed_metadata_id,
        retry_at=row.retry_at,
        attempt_cancelled=row.attempt_cancelled,
        next_due_at=row.next_due_at,
        is_retired=row.retired_at is not None,
        timing=timing_of(row, default_threshold),
    )


@cache
def _write(dialect: str) -> Update:
    manifest = tables_for(dialect).manifest
    changes = rows_of(
        dialect, "changes", {"id": BigId} | {name: manifest.c[name].type for name in RESULT_COLUMNS}
    )
    changed = {name: changes.c[name] for name in RESULT_COLUMNS}
    return update(manifest).where(manifest.c.id == changes.c.id).values(**changed)


@cache
def _reset_failures(dialect: str) -> Update:
    manifest = tables_for(dialect).manifest
    wanted = ids_of(dialect)
    return update(manifest).where(manifest.c.id == wanted.c.id).values(RESET_VALUES)


@cache
def _mark_dependents_due(dialect: str) -> Update:
    manifest = tables_for(dialect).manifest
    parents = ids_of(dialect)
    return (
        update(manifest)
        .where(manifest.c.depends_on_id == parents.c.id, text("schedule_type = 'dependent'"), text(LIVE))
        .values(next_due_at=bindparam("now", type_=Utc))
    )
