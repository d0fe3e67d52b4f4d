"""What starting this code would change in this database (`trax plan`). Nothing is written.

It makes the comparison of seeding twice: the second time as if code set every field, and no operator's value
were kept. A difference that appears only the second time was set by an operator, and stays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from trax.clock import utc_now
from trax.engine.schedule import check_stored_graph
from trax.engine.seed import (
    build_seed_plan,
    check_parents,
    declaration_digest,
    find_renames,
    parents_outside,
    refuse_other_apps,
    with_code_defaults,
)
from trax.engine.seed_groups import options_by_name, plan_group
from trax.masking import hide_secrets
from trax.records import Manifest, ManifestGroup, MisfirePolicy
from trax.records.manifest import RetryPolicy
from trax.records.schedule import Misfire, Timing
from trax.records.worker import WorkerRecord
from trax.schedule.preview import Preview, preview_runs
from trax.store import declared_groups, workers
from trax.store import groups as stored_groups
from trax.store.declared_groups import DeclaredOptions
from trax.store.manifests import manifest_rows, manifest_seed
from trax.store.manifests.manifest_seed import ManifestUsage
from trax.store.migrations import ensure_current, status
from trax.store.types import parse_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from trax.schedule.declaration import Declaration, Timetable
    from trax.settings import Settings
    from trax.store import Connection, Store
    from trax.worker.app_context import AppContext


MAX_NEXT_RUNS: Final = 5

Verb = Literal["add", "change", "rename", "return", "retire", "keep"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One field: its value in the database, and its value in code."""

    name: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedChange:
    """A change of one manifest or group. "keep": a value set by an operator, which code does not change.

    "return" brings a retired manifest back. `touches` has the entries (withdrawn) and the runs and dead
    letters (kept) of a manifest to be retired; `once_stopped` names the servers that declare other manifests
    and must stop first.
    """

    verb: Verb
    kind: Literal["manifest", "group"]
    name: str
    differences: tuple[Difference, ...] = ()
    next_runs: tuple[Preview, ...] = ()
    touches: ManifestUsage | None = None
    once_stopped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTimetable:
    """What the database has, for the comparison; empty by default."""

    rows: Mapping[str, Any] = field(default_factory=dict[str, Any])
    manifests: Mapping[str, Manifest] = field(default_factory=dict[str, Manifest])
    groups: Mapping[str, ManifestGroup] = field(default_factory=dict[str, ManifestGroup])
    gone: Mapping[str, ManifestUsage] = field(default_factory=dict[str, ManifestUsage])
    declared: Mapping[str, DeclaredOptions] = field(default_factory=dict[str, DeclaredOptions])
    """What apps declared of the groups when they last started."""
    gone_groups: tuple[str, ...] = ()
    servers: tuple[WorkerRecord, ...] = ()
    """Live servers of this app that declare other manifests."""


async def plan_start(context: AppContext) -> list[PlannedChange]:
    """The changes that a start would make. Without tables, everything is new."""
    context.submitters.check(context.trains)
    timetable = context.declarations.timetable()
    store = context.store.build_store_as_is()
    if store is None:
        return plan(timetable, StoredTimetable(), context.settings, now=utc_now(), app=context.name)
    try:
        return await store.ask(_plan, store, context, timetable)
    finally:
        store.close()


def _plan(
    connection: Connection, store: Store, context: AppContext, timetable: Timetable
) -> list[PlannedChange]:
    now = store.now(connection)
    if status(connection).state == "missing":
        return plan(timetable, StoredTimetable(), context.settings, now=now, app=context.name)
    ensure_current(connection)
    settings = context.live.refresh(connection)
    current = load_stored(connection, timetable, settings, app=context.name, now=now)
    return plan(timetable, current, settings, now=now, app=context.name)


def load_stored(
    connection: Connection, timetable: Timetable, settings: Settings, *, app: str, now: datetime
) -> StoredTimetable:
    """Read what the plan compares with; raise the errors that a start would raise.

    A manifest that would be renamed is listed under its new name.
    """
    names, renamed = [each.external_id for each in timetable.manifests], find_renames(connection, timetable)
    groups, is_pruning = {group.name for group in timetable.groups}, settings.prune_orphaned_manifests
    gone = manifest_seed.find_undeclared(connection, [*names, *renamed], app=app) if is_pruning else {}
    alive_since, digest = now - settings.worker_lost_after, declaration_digest(timetable)
    servers = workers.find_differing_servers(connection, app, digest, alive_since=alive_since)
    check_stored_graph(connection, timetable, gone=() if servers else gone, renamed=renamed)
    all_names = [*names, *parents_outside(timetable.manifests), *renamed]
    rows = manifest_seed.load_existing(connection, [*names, *renamed])
    refuse_other_apps(connection, rows.values(), settings, app=app, now=now)
    known = {
        manifest.external_id: manifest for manifest in manifest_rows.load_by_names(connection, all_names)
    }
    return StoredTimetable(
        rows={renamed.get(name, name): row for name, row in rows.items()},
        manifests={renamed.get(name, name): manifest for name, manifest in known.items()},
        groups=stored_groups.load_by_names(connection, groups),
        gone=manifest_seed.count_usage(connection, gone),
        declared=declared_groups.load_declared(connection, groups),
        gone_groups=_find_unused_groups(connection, timetable, app, servers) if is_pruning else (),
        servers=tuple(servers),
    )


def _find_unused_groups(
    connection: Connection, timetable: Timetable, app: str, servers: Sequence[WorkerRecord]
) -> tuple[str, ...]:
    """The groups that a start would retire. While other servers differ, those of this app stay."""
    own = declared_groups.load_dropped(connection, app, options_by_name(timetable))
    dropped = [] if servers else [name for name, by_app in own.items() if by_app.keys() == {app}]
    named = {group.name for group in timetable.groups}
    unused: set[str] = set()
    after_id: int | None = 0
    while after_id is not None:
        found = declared_groups.find_unused(connection, after_id=after_id, dropped=dropped)
        unused.update(name for name in found.retired if name not in named)
        after_id = found.last_id
    return tuple(sorted(unused))


def plan(
    timetable: Timetable, stored: StoredTimetable, settings: Settings, *, now: datetime, app: str = "default"
) -> list[PlannedChange]:
    """All changes, in the order in which they would be made; then the operators' values that are kept."""
    gone = () if stored.servers else stored.gone
    stored_parents = {
        name: manifest.retired_at is not None or name in gone for name, manifest in stored.manifests.items()
    }
    check_parents(timetable.manifests, stored_parents)
    changes, with_defaults = (
        _plan_changes(timetable, stored, settings, now, app),
        with_code_defaults(timetable),
    )
    return [
        *_retirements(stored),
        *changes,
        *(PlannedChange(verb="retire", kind="group", name=name) for name in stored.gone_groups),
        *_operator_choices(changes, _plan_changes(with_defaults, stored, settings, now, app, resets=True)),
    ]


def _retirements(stored: StoredTimetable) -> list[PlannedChange]:
    servers = tuple(f"{server.host} (process {server.pid})" for server in stored.servers)
    return [
        PlannedChange(verb="retire", kind="manifest", name=name, touches=touches, once_stopped=servers)
        for name, touches in stored.gone.items()
    ]


def _plan_changes(
    timetable: Timetable,
    stored: StoredTimetable,
    settings: Settings,
    now: datetime,
    app: str,
    *,
    resets: bool = False,
) -> list[PlannedChange]:
    return [
        *_plan_groups(timetable, stored, app, resets=resets),
        *_plan_manifests(timetable, stored, settings, now, app, resets=resets),
    ]


def _operator_choices(changes: list[PlannedChange], without: list[PlannedChange]) -> list[PlannedChange]:
    by_code = {(one.kind, one.name): {each.name for each in one.differences} for one in changes}
    kept: list[PlannedChange] = []
    for change in without:
        names = by_code.get((change.kind, change.name), ())
        by_operator = tuple(each for each in change.differences if each.name not in names)
        if change.verb == "change" and by_operator:
            kept.append(
                PlannedChange(verb="keep", kind=change.kind, name=change.name, differences=by_operator)
            )
    return kept


def _plan_groups(
    timetable: Timetable, stored: StoredTimetable, app: str, *, resets: bool
) -> list[PlannedChange]:
    changes: list[PlannedChange] = []
    for group in timetable.groups:
        before = stored.groups.get(group.name)
        remembered = stored.declared.get(group.name, {}).get(app, {})
        after = plan_group(group, before or _new_group(group.name), remembered, resets=resets).changes
        differences = tuple(Difference(name, getattr(before, name, None), after[name]) for name in after)
        if before is None:
            changes.append(PlannedChange(verb="add", kind="group", name=group.name, differences=differences))
        elif differences:
            changes.append(
                PlannedChange(verb="change", kind="group", name=group.name, differences=differences)
            )
    return changes


def _plan_manifests(
    timetable: Timetable,
    stored: StoredTimetable,
    settings: Settings,
    now: datetime,
    app: str,
    *,
    resets: bool,
) -> list[PlannedChange]:
    new = {group.name: _new_group(group.name) for group in timetable.groups}
    seeds = build_seed_plan(
        timetable.manifests, stored.rows, {**new, **stored.groups}, settings, now=now, app=app, resets=resets
    )
    added = {row["external_id"]: row for row in seeds.added}
    changed = {row["id"]: row for row in seeds.changed}
    changes: list[PlannedChange] = []
    for each in timetable.manifests:
        before = stored.rows.get(each.external_id)
        columns = added.get(each.external_id) if before is None else _row_after(before, changed)
        differences = _differences(each, columns, before, stored)
        verb = _verb(each, before)
        if verb != "change" or differences:
            runs = _next_runs(each, columns, before, settings, now)
            changes.append(
                PlannedChange(
                    verb=verb,
                    kind="manifest",
                    name=each.external_id,
                    differences=differences,
                    next_runs=runs,
                )
            )
    return changes


def _row_after(before: Any, changed: Mapping[int, Mapping[str, Any]]) -> dict[str, Any] | None:
    """The whole row as it would be; None: nothing would change."""
    if before.id not in changed:
        return None
    kept = {
        name: getattr(before, name)
        for name in (*manifest_seed.DECLARED_COLUMNS, *manifest_seed.PLANNED_COLUMNS)
    }
    return {**kept, **changed[before.id]}


def _verb(each: Declaration, before: Any) -> Verb:
    if before is None:
        return "add"
    if before.external_id != each.external_id:
        return "rename"
    return "change" if before.retired_at is None else "return"


SHOWN_NAMES: Final = {"max_retries": "max_attempts"}
"""Columns that have another name in code."""


def _differences(
    each: Declaration, columns: Mapping[str, Any] | None, before: Any, stored: StoredTimetable
) -> tuple[Difference, ...]:
    if before is None:
        return ()
    renamed = before.external_id != each.external_id
    differences = [Difference("external_id", before.external_id, each.external_id)] if renamed else []
    if before.retired_at is not None:
        differences.append(Difference("retired_at", before.retired_at, None))
    names = [
        name
        for name in manifest_seed.DECLARED_COLUMNS
        if columns and name != "declared_enabled" and getattr(before, name) != columns[name]
    ]
    kept = stored.manifests[each.external_id]
    differences += [
        Difference("group", kept.group, each.group)
        if name == "group_id"
        else Difference(
            SHOWN_NAMES.get(name, name),
            _format_value(name, getattr(before, name)),
            _format_value(name, columns[name]),
        )
        for name in names
        if columns
    ]
    if kept.depends_on != each.depends_on:
        differences.append(Difference("depends_on", kept.depends_on, each.depends_on))
    return tuple(differences)


def _format_value(name: str, value: Any) -> Any:
    """The value to show; secrets in an input are masked."""
    match name:
        case "input":
            return json.dumps(hide_secrets(parse_json(value)), ensure_ascii=False)
        case "retry" if policy := RetryPolicy.from_json(value):
            return str(policy)
        case _:
            return value


def _next_runs(
    each: Declaration, columns: Mapping[str, Any] | None, before: Any, settings: Settings, now: datetime
) -> tuple[Preview, ...]:
    if columns is None or not columns["enabled"]:
        return ()
    return tuple(preview_runs(_build_timing(each, columns, before, settings, now), now, MAX_NEXT_RUNS))


def _build_timing(
    each: Declaration, columns: Mapping[str, Any], before: Any, settings: Settings, now: datetime
) -> Timing:
    own = columns["misfire_threshold_seconds"]
    threshold = settings.default_misfire_threshold if own is None else timedelta(seconds=own)
    return Timing(
        schedule_type=each.schedule_type,
        schedule=each.schedule,
        scheduled_at=columns["scheduled_at"],
        exclusions=each.exclusions,
        time_zone=columns["time_zone"],
        misfire=Misfire(MisfirePolicy(columns["misfire_policy"]), threshold, each.misfire_limit),
        created_at=before.created_at if before else now,
        last_successful_run=before.last_successful_run if before else None,
        last_scheduled_for=columns["last_scheduled_for"],
        next_scheduled_run=columns["next_scheduled_run"],
    )


def _new_group(name: str) -> ManifestGroup:
    return ManifestGroup(id=0, name=name, priority=0, max_active_jobs=None, enabled=True)
