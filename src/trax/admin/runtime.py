"""Scheduling at run time: the same declarations, written at once, marked as nobody's code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.admin.seeding import rename, renames, retire, seed
from trax.admin.triggers import refusal_of_retired, unknown
from trax.errors import DefinitionError
from trax.events import Topic
from trax.records.states import ManifestOrigin
from trax.schedule.graph import check_graph
from trax.store import dialect, manifests, seeding
from trax.store.announcing import announce

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from trax.records import Manifest
    from trax.schedule.declaration import Timetable
    from trax.settings import Settings
    from trax.store import Connection, Store


def schedule(
    connection: Connection,
    store: Store,
    timetable: Timetable,
    settings: Settings,
    batch: str | None = None,
    app: str = "default",
) -> list[Manifest]:
    """Write manifests at run time, all of them or none; of a batch, what is no longer in it is retired."""
    if not timetable.manifests:
        return []
    dialect.take_leader_lock(connection)
    now = store.now(connection)
    _refuse_declared(connection, renames(connection, timetable))
    rename(connection, timetable, now=now)
    check_with_stored(connection, timetable)
    seed(connection, timetable, settings, now=now, app=app, origin=ManifestOrigin.RUNTIME)
    names = [each.external_id for each in timetable.manifests]
    if batch is not None:
        left = seeding.undeclared(connection, names, app=app, batch=batch)
        retire(connection, list(left.values()), now=now)
    announce(connection, Topic.MANIFEST)
    return manifests.named(connection, names)


def delete(connection: Connection, external_id: str, *, now: datetime) -> None:
    """Retire a manifest: it stops firing and its entries are withdrawn; history and dead letters stay."""
    dialect.take_leader_lock(connection)  # the manager must not write an entry for it meanwhile
    found = manifests.get(connection, external_id)
    if found is None:
        raise unknown(external_id)
    if found.retired_at is not None:
        raise refusal_of_retired(external_id, found.retired_at)
    retire(connection, [found.id], now=now)


def check_with_stored(
    connection: Connection,
    timetable: Timetable,
    *,
    gone: Collection[str] = (),
    renamed: Mapping[str, str] | None = None,
) -> None:
    """Refuse circles, also those that go through manifests that are there already, and are not to go.

    A retired parent that nobody declares holds up nobody. `renamed` has the new ids of stored manifests.
    """
    new = renamed or {}
    declared = {each.external_id for each in timetable.manifests}
    parents_of: dict[str, str | None] = {}
    groups: dict[str, str] = {}
    for row in seeding.dependencies(connection):
        child, parent = new.get(row.child, row.child), new.get(row.parent, row.parent)
        is_gone = row.parent_is_retired and parent not in declared
        if not is_gone and not {child, parent} & {*gone}:
            parents_of[child] = parent
            groups |= {child: row.child_group, parent: row.parent_group}
    parents = [each.depends_on for each in timetable.manifests if each.depends_on is not None]
    groups |= {parent.external_id: parent.group for parent in manifests.named(connection, parents)}
    check_graph(timetable.manifests, stored_parents=parents_of, stored_groups=groups)


def _refuse_declared(connection: Connection, renamed: Mapping[str, str]) -> None:
    """What code declares is renamed in code: else the next start would declare it anew."""
    for row in seeding.existing(connection, renamed).values():
        if row.origin == ManifestOrigin.DECLARED and row.retired_at is None:
            raise DefinitionError(
                f"manifest {renamed[row.external_id]!r} is renamed from {row.external_id!r}, which is "
                f"declared in code; rename it there"
            )
