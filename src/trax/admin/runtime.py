"""Scheduling at run time: the same declarations, written at once, marked as nobody's code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.admin.seeding import seed
from trax.admin.triggers import unknown
from trax.events import Topic
from trax.records.states import ManifestOrigin
from trax.schedule.graph import check_graph
from trax.store import dialect, manifests, seeding
from trax.store.announcing import announce

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax.records import Manifest
    from trax.schedule.declaration import Timetable
    from trax.settings import Settings
    from trax.store import Connection, Store


def schedule(
    connection: Connection, store: Store, timetable: Timetable, settings: Settings, batch: str | None = None
) -> list[Manifest]:
    """Write manifests at run time, all of them or none; of a batch, what is no longer in it goes."""
    if not timetable.manifests:
        return []
    dialect.take_leader_lock(connection)
    check_with_stored(connection, timetable)
    seed(connection, timetable, settings, now=store.now(connection), origin=ManifestOrigin.RUNTIME)
    names = [each.external_id for each in timetable.manifests]
    if batch is not None:
        seeding.delete_manifests(connection, seeding.undeclared(connection, names, batch=batch))
    announce(connection, Topic.MANIFEST)
    return manifests.named(connection, names)


def delete(connection: Connection, external_id: str) -> None:
    """Delete a manifest with its history, its entries and its dead letters."""
    dialect.take_leader_lock(connection)  # the manager must not write an entry for it meanwhile
    ids = manifests.ids_of(connection, [external_id])
    if not ids:
        raise unknown(external_id)
    seeding.delete_manifests(connection, ids)


def check_with_stored(connection: Connection, timetable: Timetable, *, gone: Sequence[str] = ()) -> None:
    """Refuse circles, also those that go through manifests that are there already, and are not to go."""
    stored = [row for row in seeding.dependencies(connection) if not {*row[:2]} & {*gone}]
    groups = {name: group for row in stored for name, group in (row[::2], row[1::2])}
    parents = [each.depends_on for each in timetable.manifests if each.depends_on is not None]
    groups |= {parent.external_id: parent.group for parent in manifests.named(connection, parents)}
    parents_of = {child: parent for child, parent, _, _ in stored}
    check_graph(timetable.manifests, stored_parents=parents_of, stored_groups=groups)
