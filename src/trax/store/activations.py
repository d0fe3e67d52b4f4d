"""How dormant manifests stand that their parent wants to wake."""

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


def held(connection: Connection, external_ids: Sequence[str]) -> dict[str, Row[Any]]:
    """The same, with their rows locked: of two runs that want to wake one, the second sees the first."""
    found = targets(connection, external_ids)
    lock(connection, (row.id for row in found.values()))
    return targets(connection, external_ids)


def targets(connection: Connection, external_ids: Iterable[str]) -> dict[str, Row[Any]]:
    names = name_document("external_id", external_ids)
    rows = connection.execute(_targets(connection.dialect.name), {"names": names})
    return {row.external_id: row for row in rows}


@cache
def _targets(dialect: str) -> Select[Any]:
    t = tables_for(dialect)
    manifest, parent = t.manifest, t.manifest.alias("parent")
    given = rows_of(dialect, "names", {"external_id": manifest.c.external_id.type})

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
        .join(given, given.c.external_id == manifest.c.external_id)
        .join(t.manifest_group, t.manifest_group.c.id == manifest.c.group_id)
        .outerjoin(parent, parent.c.id == manifest.c.depends_on_id)
    )
