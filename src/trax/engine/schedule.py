"""Write manifests: those that code declares, when a server starts, and others at run time; delete them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trax.engine.rescue import can_declare_lost, recover
from trax.engine.seed import (
    RetirementResult,
    find_renames,
    rename,
    retire,
    retire_undeclared,
    seed,
)
from trax.engine.trigger import get_manifest, manifest_retired_conflict
from trax.errors import DefinitionError
from trax.events import Topic
from trax.records.states import ManifestOrigin
from trax.schedule.graph import check_graph
from trax.store import dialect
from trax.store.announce import announce
from trax.store.groups import NO_CODE
from trax.store.manifests import manifest_rows, manifest_seed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime

    from trax.engine.seed import SeedPlan
    from trax.records import Manifest
    from trax.records.worker import HeartbeatStreak
    from trax.schedule.declaration import Timetable
    from trax.settings import Settings
    from trax.store import Connection, Store
    from trax.store.groups import GroupCode


def schedule(
    connection: Connection,
    store: Store,
    timetable: Timetable,
    settings: Settings,
    batch: str | None = None,
    app: str = "default",
    code: GroupCode = NO_CODE,
) -> list[Manifest]:
    """Write manifests at run time, all or none; manifests that are no longer in the `batch` are retired.

    Groups that do not exist yet are created as `code` declares them.
    """
    if not timetable.manifests:
        return []
    dialect.take_leader_lock(connection)
    now = store.now(connection)
    _refuse_declared(connection, find_renames(connection, timetable))
    rename(connection, timetable, settings, app=app, now=now)
    check_stored_graph(connection, timetable)
    seed(connection, timetable, settings, now=now, app=app, origin=ManifestOrigin.RUNTIME, code=code)
    names = [each.external_id for each in timetable.manifests]
    if batch is not None:
        left = manifest_seed.find_undeclared(connection, names, app=app, batch=batch)
        retire(connection, list(left.values()), now=now)
    announce(connection, Topic.MANIFEST)
    return manifest_rows.load_by_names(connection, names)


def delete(connection: Connection, external_id: str, *, now: datetime) -> None:
    """Retire a manifest: it stops firing and its entries are withdrawn; history and dead letters stay."""
    dialect.take_leader_lock(connection)  # the manager must not write an entry for it meanwhile
    found = get_manifest(connection, external_id)
    if found.retired_at is not None:
        raise manifest_retired_conflict(external_id, found.retired_at)
    retire(connection, [found.id], now=now)


def check_stored_graph(
    connection: Connection,
    timetable: Timetable,
    *,
    gone: Collection[str] = (),
    renamed: Mapping[str, str] | None = None,
) -> None:
    """Refuse cycles of dependencies, also those through stored manifests, except those that will be `gone`.

    A retired parent that is not declared is ignored. `renamed` has the new external ids of stored manifests.
    """
    if not timetable.manifests:
        return  # nothing new, so no new cycle
    new = renamed or {}
    declared = {each.external_id for each in timetable.manifests}
    parents_of: dict[str, str | None] = {}
    groups: dict[str, str] = {}
    for row in manifest_seed.dependencies(connection):
        child, parent = new.get(row.child, row.child), new.get(row.parent, row.parent)
        is_gone = row.parent_is_retired and parent not in declared
        if not is_gone and not {child, parent} & {*gone}:
            parents_of[child] = parent
            groups |= {child: row.child_group, parent: row.parent_group}
    parents = [each.depends_on for each in timetable.manifests if each.depends_on is not None]
    groups |= {
        parent.external_id: parent.group for parent in manifest_rows.load_by_names(connection, parents)
    }
    check_graph(timetable.manifests, stored_parents=parents_of, stored_groups=groups)


def _refuse_declared(connection: Connection, renamed: Mapping[str, str]) -> None:
    """Refuse to rename a manifest that code declares: the next start would declare it again."""
    for row in manifest_seed.load_existing(connection, renamed).values():
        if row.origin == ManifestOrigin.DECLARED and row.retired_at is None:
            raise DefinitionError(
                f"manifest {renamed[row.external_id]!r} is renamed from {row.external_id!r}, which is "
                f"declared in code; rename it there"
            )


def start_up(
    connection: Connection,
    store: Store,
    timetable: Timetable,
    settings: Settings,
    on_progress: Callable[[int, int], None] | None = None,
    app: str = "default",
    heartbeat_streak: HeartbeatStreak | None = None,
    register: Callable[[Connection], object] | None = None,
) -> SeedPlan:
    """Recover, rename, retire and seed under the leader lock: servers that start together take turns.

    `retired.postponed` has the undeclared manifests that `retire_undeclared` must retire later. `register`
    tells the next server that this one is alive: its own row is written only after this transaction.
    """
    dialect.lift_limits(connection)
    dialect.take_leader_lock(connection)
    now = store.now(connection)
    if settings.recover_stuck_jobs_on_startup and can_declare_lost(heartbeat_streak, settings, now):
        recover(connection, settings, now=now)
    rename(connection, timetable, settings, app=app, now=now)
    retired = RetirementResult()
    if settings.prune_orphaned_manifests:  # before seeding, so that no manifest can depend on a retired one
        retired = retire_undeclared(connection, timetable, settings, app=app, now=now)
    check_stored_graph(connection, timetable)
    plan = seed(connection, timetable, settings, now=now, app=app, on_progress=on_progress)
    if register is not None:
        register(connection)
    return replace(plan, retired=retired)
