"""Load the dormant manifests that a run of their parent activates, with what blocks them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import select, text

from trax.store.dialect import name_document, rows_of
from trax.store.manifest_locks import lock
from trax.store.schema import tables_for
from trax.store.schema.metadata import ACTIVE
from trax.store.schema.work_queue import QUEUED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection, Row, Select


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
