"""What the end of a run writes to its manifest, and to the manifests that depend on it."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, select, text, union, update

from trax.records.ended import Held
from trax.store.dialect import document, id_document, ids_of, rows_of
from trax.store.manifest_locks import lock
from trax.store.manifest_rows import timing_of
from trax.store.schema import tables_for
from trax.store.schema.manifest import LIVE
from trax.store.text import storable
from trax.store.types import BigId, Utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import Connection, Row, Select, Update

    from trax.records.ended import ManifestChange

WRITTEN = (
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
FORGIVEN = {
    "failure_count": 0,
    "lifetime_failures": 0,
    "gave_up_reason": None,
    "failed_metadata_id": None,
    "retry_at": None,
    "attempt_cancelled": False,
}


def hold(
    connection: Connection, ids: Iterable[int], *, succeeded: Iterable[int], default_threshold: timedelta
) -> list[Held]:
    """Lock these manifests, and those to be woken by the ones that succeeded; returns these.

    All in one statement and in the order of their ids, so that two batches cannot block each other.
    """
    ids = set(ids)
    given = {"ids": id_document(ids), "parents": id_document(set(succeeded))}
    rows = connection.execute(_hold(connection.dialect.name), given)
    return [_held(row, default_threshold) for row in rows if row.id in ids]


def write(connection: Connection, changes: Sequence[ManifestChange]) -> None:
    if changes:
        rows = document(
            asdict(change) | {"gave_up_reason": storable(change.gave_up_reason)} for change in changes
        )
        connection.execute(_write(connection.dialect.name), {"changes": rows})


def forgive(connection: Connection, ids: Iterable[int]) -> None:
    """Begin the count of failures anew: a person has dealt with them."""
    ids = set(ids)
    lock(connection, ids)
    connection.execute(_forgive(connection.dialect.name), {"ids": id_document(ids)})


def wake_dependents(connection: Connection, parent_ids: Iterable[int], *, now: datetime) -> None:
    """Have the manager look at whoever depends on these."""
    wanted = id_document(set(parent_ids))
    connection.execute(_wake_dependents(connection.dialect.name), {"ids": wanted, "now": now})


@cache
def _hold(dialect: str) -> Select[Any]:
    manifest = tables_for(dialect).manifest
    dependent = manifest.alias("dependent")
    given = ids_of(dialect)
    parents = ids_of(dialect, "parents")
    woken = select(dependent.c.id).join(parents, parents.c.id == dependent.c.depends_on_id)
    wanted = union(select(given.c.id), woken).subquery("wanted")
    return (
        select(manifest)
        .join(wanted, wanted.c.id == manifest.c.id)
        .order_by(manifest.c.id)
        .with_for_update(of=manifest)
    )


def _held(row: Row[Any], default_threshold: timedelta) -> Held:
    return Held(
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
    given = rows_of(dialect, "changes", {"id": BigId} | {name: manifest.c[name].type for name in WRITTEN})
    changed = {name: given.c[name] for name in WRITTEN}
    return update(manifest).where(manifest.c.id == given.c.id).values(**changed)


@cache
def _forgive(dialect: str) -> Update:
    manifest = tables_for(dialect).manifest
    given = ids_of(dialect)
    return update(manifest).where(manifest.c.id == given.c.id).values(FORGIVEN)


@cache
def _wake_dependents(dialect: str) -> Update:
    manifest = tables_for(dialect).manifest
    given = ids_of(dialect)
    return (
        update(manifest)
        .where(manifest.c.depends_on_id == given.c.id, text("schedule_type = 'dependent'"), text(LIVE))
        .values(next_due_at=bindparam("now", type_=Utc))
    )
