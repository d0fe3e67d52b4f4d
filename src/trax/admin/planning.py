"""What starting this code would change in this database. Nothing is written.

The comparison is the one that seeding makes. What operators have set is found by making it once more as if
code had said everything: what differs only then is theirs, and stays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from trax.admin.runtime import check_with_stored
from trax.admin.seeding import (
    check_parents,
    declaration_digest,
    group_changes,
    parents_elsewhere,
    planned,
    renames,
    without_operators,
)
from trax.masking import hide_secrets
from trax.records import Manifest, ManifestGroup, MisfirePolicy
from trax.records.when import Misfire, Timing
from trax.records.worker import Worker
from trax.schedule.preview import Preview, previewed
from trax.store import manifest_groups, manifests, seeding, workers
from trax.store.json import parsed
from trax.store.seeding import Belongings

if TYPE_CHECKING:
    from datetime import datetime

    from trax.schedule.declaration import Declaration, Timetable
    from trax.settings import Settings
    from trax.store import Connection

SHOWN_RUNS: Final = 5
Verb = Literal["add", "change", "rename", "return", "retire", "remove", "keep"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One field: what stands in the database, and what code says."""

    name: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What happens to one manifest or group; "keep": an operator's choice that code does not touch.

    A manifest that is retired may come back ("return"). What its retirement `touches` is withdrawn (entries)
    or goes on (runs, letters); it happens `once_stopped` are the servers that declare another set.
    """

    verb: Verb
    kind: Literal["manifest", "group"]
    name: str
    differences: tuple[Difference, ...] = ()
    next_runs: tuple[Preview, ...] = ()
    touches: Belongings | None = None
    once_stopped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What is in the database, as far as it matters; by default nothing is."""

    rows: Mapping[str, Any] = field(default_factory=dict[str, Any])
    manifests: Mapping[str, Manifest] = field(default_factory=dict[str, Manifest])
    groups: Mapping[str, ManifestGroup] = field(default_factory=dict[str, ManifestGroup])
    gone: Mapping[str, Belongings] = field(default_factory=dict[str, Belongings])
    gone_groups: tuple[str, ...] = ()
    servers: tuple[Worker, ...] = ()
    """Live servers of this app that declare another set."""


def stored(
    connection: Connection, timetable: Timetable, settings: Settings, *, app: str, now: datetime
) -> Stored:
    """Read what the plan compares with; refuse what a start would refuse.

    What would be renamed stands under its new name already.
    """
    names, renamed = [each.external_id for each in timetable.manifests], renames(connection, timetable)
    groups, is_pruning = {group.name for group in timetable.groups}, settings.prune_orphaned_manifests
    gone = seeding.undeclared(connection, [*names, *renamed], app=app) if is_pruning else {}
    alive_since, digest = now - settings.worker_lost_after, declaration_digest(timetable)
    servers = workers.differing_servers(connection, app, digest, alive_since=alive_since)
    check_with_stored(connection, timetable, gone=() if servers else gone, renamed=renamed)
    asked = [*names, *parents_elsewhere(timetable.manifests), *renamed]
    rows = seeding.existing(connection, [*names, *renamed])
    known = {one.external_id: one for one in manifests.named(connection, asked)}
    return Stored(
        rows={renamed.get(name, name): row for name, row in rows.items()},
        manifests={renamed.get(name, name): one for name, one in known.items()},
        groups=manifest_groups.of_names(connection, groups),
        gone=seeding.belongings(connection, gone),
        gone_groups=tuple(seeding.empty_groups(connection, groups)) if is_pruning else (),
        servers=tuple(servers),
    )


def plan(
    timetable: Timetable, found: Stored, settings: Settings, *, now: datetime, app: str = "default"
) -> list[Change]:
    """Every change, in the order in which it would be made; then what operators have set and is kept."""
    going = () if found.servers else found.gone
    in_database = {name: one.retired_at is not None or name in going for name, one in found.manifests.items()}
    check_parents(timetable.manifests, in_database)
    changes = _changes(timetable, found, settings, now, app)
    return [
        *_retirements(found),
        *changes,
        *(Change(verb="remove", kind="group", name=name) for name in found.gone_groups),
        *_kept(changes, _changes(without_operators(timetable), found, settings, now, app)),
    ]


def _retirements(found: Stored) -> list[Change]:
    servers = tuple(f"{one.host} (process {one.pid})" for one in found.servers)
    return [
        Change(verb="retire", kind="manifest", name=name, touches=touches, once_stopped=servers)
        for name, touches in found.gone.items()
    ]


def _changes(
    timetable: Timetable, found: Stored, settings: Settings, now: datetime, app: str
) -> list[Change]:
    return [*_of_groups(timetable, found), *_of_manifests(timetable, found, settings, now, app)]


def _kept(changes: list[Change], without: list[Change]) -> list[Change]:
    made = {(one.kind, one.name): {each.name for each in one.differences} for one in changes}
    kept: list[Change] = []
    for one in without:
        theirs = [each for each in one.differences if each.name not in made.get((one.kind, one.name), ())]
        if one.verb == "change" and theirs:
            kept.append(Change(verb="keep", kind=one.kind, name=one.name, differences=tuple(theirs)))
    return kept


def _of_groups(timetable: Timetable, found: Stored) -> list[Change]:
    changes: list[Change] = []
    for group in timetable.groups:
        kept = found.groups.get(group.name)
        said = group_changes(group, kept or _new_group(group.name))
        differences = tuple(Difference(name, getattr(kept, name, None), said[name]) for name in said)
        if kept is None:
            changes.append(Change(verb="add", kind="group", name=group.name, differences=differences))
        elif differences:
            changes.append(Change(verb="change", kind="group", name=group.name, differences=differences))
    return changes


def _of_manifests(
    timetable: Timetable, found: Stored, settings: Settings, now: datetime, app: str
) -> list[Change]:
    new = {group.name: _new_group(group.name) for group in timetable.groups}
    seeds = planned(timetable.manifests, found.rows, {**new, **found.groups}, settings, now=now, app=app)
    added = {row["external_id"]: row for row in seeds.added}
    changed = {row["id"]: row for row in seeds.changed}
    changes: list[Change] = []
    for each in timetable.manifests:
        before = found.rows.get(each.external_id)
        columns = added.get(each.external_id) if before is None else _after(before, changed)
        differences = _differences(each, columns, before, found)
        verb = _verb(each, before)
        if verb != "change" or differences:
            runs = _next_runs(each, columns, before, settings, now)
            changes.append(
                Change(
                    verb=verb,
                    kind="manifest",
                    name=each.external_id,
                    differences=differences,
                    next_runs=runs,
                )
            )
    return changes


def _after(before: Any, changed: Mapping[int, Mapping[str, Any]]) -> dict[str, Any] | None:
    """The whole row as it would be; None: nothing of it would change."""
    if before.id not in changed:
        return None
    kept = {name: getattr(before, name) for name in (*seeding.DECLARED, *seeding.PLANNED)}
    return {**kept, **changed[before.id]}


def _verb(each: Declaration, before: Any) -> Verb:
    if before is None:
        return "add"
    if before.external_id != each.external_id:
        return "rename"
    return "change" if before.retired_at is None else "return"


def _differences(
    each: Declaration, columns: Mapping[str, Any] | None, before: Any, found: Stored
) -> tuple[Difference, ...]:
    if before is None:
        return ()
    renamed = before.external_id != each.external_id
    differences = [Difference("external_id", before.external_id, each.external_id)] if renamed else []
    if before.retired_at is not None:
        differences.append(Difference("retired_at", before.retired_at, None))
    names = [name for name in seeding.DECLARED if columns and getattr(before, name) != columns[name]]
    kept = found.manifests[each.external_id]
    differences += [
        Difference("group", kept.group, each.group)
        if name == "group_id"
        else Difference(name, _shown(name, getattr(before, name)), _shown(name, columns[name]))
        for name in names
        if columns
    ]
    if kept.depends_on != each.depends_on:
        differences.append(Difference("depends_on", kept.depends_on, each.depends_on))
    return tuple(differences)


def _shown(name: str, value: Any) -> Any:
    """An input may hold what is nobody's business."""
    return json.dumps(hide_secrets(parsed(value)), ensure_ascii=False) if name == "input" else value


def _next_runs(
    each: Declaration, columns: Mapping[str, Any] | None, before: Any, settings: Settings, now: datetime
) -> tuple[Preview, ...]:
    if columns is None or not columns["enabled"]:
        return ()
    return tuple(previewed(_timing(each, columns, before, settings, now), now, SHOWN_RUNS))


def _timing(
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
