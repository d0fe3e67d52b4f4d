"""Seed groups: write the options that code declares, and keep those that operators have set since.

The row of a group remembers what the code of each app declares. A start writes an option only if the code's
value has changed since the last start of that app; until then the value in the row is an operator's choice.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trax.engine.actor import DECLARATION, record_audit
from trax.records.manifest import LIMIT_FIELDS
from trax.schedule.declaration import UNSET
from trax.store import declared_groups
from trax.store import groups as stored_groups
from trax.store.groups import GroupCode
from trax.store.manifests import manifest_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from trax.records import ManifestGroup
    from trax.schedule.declaration import GroupDeclaration, Timetable
    from trax.store import Connection

OPTIONS: Final = ("max_active_jobs", "priority", "enabled")


class KeptValue(NamedTuple):
    """A value that an operator set, and what code declares instead, unchanged since the last start."""

    kind: str
    name: str
    field: str
    value: Any
    declared: Any


class SeededGroups(NamedTuple):
    """The groups of a timetable, by name, and the operators' values that stay."""

    stored: Mapping[str, ManifestGroup]
    kept: list[KeptValue]


class GroupPlan(NamedTuple):
    """What seeding changes of a group, and the operators' values that it keeps."""

    changes: Mapping[str, Any]
    kept: tuple[KeptValue, ...]


def options_of(group: GroupDeclaration) -> dict[str, Any]:
    """The options that code sets."""
    values = {name: getattr(group, name) for name in OPTIONS}
    return {name: value for name, value in values.items() if value is not UNSET}


def options_by_name(timetable: Timetable) -> dict[str, dict[str, Any]]:
    """The groups that code names for themselves: with an option, or without a manifest in them."""
    in_use = {each.group for each in timetable.manifests}
    options = {group.name: options_of(group) for group in timetable.groups}
    return {name: given for name, given in options.items() if given or name not in in_use}


def code_of(app: str, find_group: Callable[[str], GroupDeclaration | None]) -> GroupCode:
    """What the code of an app declares, for groups that do not exist yet."""

    def options(name: str) -> Mapping[str, Any] | None:
        group = find_group(name)
        return None if group is None else options_of(group)

    return GroupCode(app, options)


def with_default_options(group: GroupDeclaration) -> GroupDeclaration:
    """The same group, with every option that code does not set at its default."""
    defaults = {"max_active_jobs": None, "priority": 0, "enabled": True}
    unset = {name: value for name, value in defaults.items() if getattr(group, name) is UNSET}
    return replace(group, **unset)  # pyright: ignore[reportArgumentType]


def plan_group(
    group: GroupDeclaration, stored: ManifestGroup, remembered: Mapping[str, Any], *, resets: bool = False
) -> GroupPlan:
    """Compare a group with its row. `remembered` are the options at the app's last start.

    With `resets`, operators' values are not kept.
    """
    options = options_of(group)
    differing = [name for name, value in options.items() if getattr(stored, name) != value]
    unchanged = {name for name in differing if name in remembered and remembered[name] == options[name]}
    kept = () if resets else tuple(name for name in differing if name in unchanged)
    return GroupPlan(
        changes={name: options[name] for name in differing if name not in kept},
        kept=tuple(
            KeptValue("group", group.name, name, getattr(stored, name), options[name]) for name in kept
        ),
    )


def seed_groups(
    connection: Connection, timetable: Timetable, *, app: str, now: datetime, resets: bool = False
) -> SeededGroups:
    """Write the groups that the code of an app declares."""
    declared = options_by_name(timetable)
    names = [group.name for group in timetable.groups]
    known = stored_groups.load_by_names(connection, {*names})
    code = GroupCode(app, declared.get)
    stored = stored_groups.get_or_create(connection, names, now=now, code=code)
    remembered = declared_groups.load_declared(connection, names)
    seeded = SeededGroups(stored, [])
    for group in timetable.groups:
        before, by_app = stored[group.name], remembered.get(group.name, {})
        plan = plan_group(group, before, by_app.get(app, {}), resets=resets)
        memory = {name: options for name, options in by_app.items() if name != app}
        memory |= {app: declared[group.name]} if group.name in declared else {}
        columns = _owner_columns(memory) if memory != by_app or before.retired_at is not None else {}
        _change(connection, before, {**plan.changes, **columns}, now=now)
        if group.name in known:
            _record_limit(connection, before, plan.changes, now=now)
        seeded.kept.extend(plan.kept)
    return seeded


def seed_groups_at_run_time(
    connection: Connection, timetable: Timetable, *, code: GroupCode, now: datetime
) -> SeededGroups:
    """Write the groups of manifests that are scheduled at run time. Their options count as an operator's."""
    names = [group.name for group in timetable.groups]
    known = stored_groups.load_by_names(connection, {*names})
    stored = stored_groups.get_or_create(connection, names, now=now, code=code)
    for group in timetable.groups:
        before = stored[group.name]
        plan = plan_group(group, before, {})
        edited = {"edited_at": now, "ad_hoc": False} if options_of(group) else {}
        retired = {"retired_at": None} if before.retired_at is not None else {}
        _change(connection, before, {**plan.changes, **edited, **retired}, now=now)
        if group.name in known:
            _record_limit(connection, before, plan.changes, now=now)
    return SeededGroups(stored, [])


def drop_groups(connection: Connection, timetable: Timetable, *, app: str, now: datetime) -> None:
    """Note which groups this app no longer declares; a sweep retires those that nothing else needs."""
    keep = options_by_name(timetable)
    for name, by_app in declared_groups.load_dropped(connection, app, keep).items():
        memory = {other: options for other, options in by_app.items() if other != app}
        stored_groups.change(connection, name, {"declared": json.dumps(memory) if memory else None}, now=now)


def sweep_groups(connection: Connection, after_id: int, *, now: datetime) -> int | None:
    """Retire the next groups that nothing declares or needs; returns where to go on."""
    swept = declared_groups.sweep(connection, after_id=after_id, now=now)
    if swept.retired:
        record_audit(connection, "groups.retire", "group", swept.retired, now=now, default=DECLARATION)
    return swept.last_id


def _owner_columns(memory: Mapping[str, Any]) -> dict[str, Any]:
    declared = json.dumps(memory) if memory else None
    return {"declared": declared, "ad_hoc": False, "retired_at": None}


def _change(
    connection: Connection, group: ManifestGroup, columns: Mapping[str, Any], *, now: datetime
) -> None:
    if columns:
        stored_groups.change(connection, group.name, columns, now=now)
    if columns.get("enabled"):
        manifest_rows.mark_group_due(connection, group.id, now=now)


def _record_limit(
    connection: Connection, group: ManifestGroup, changes: Mapping[str, Any], *, now: datetime
) -> None:
    """Record a changed limit in the audit log. That of a new group is in its row."""
    limits = {name: value for name, value in changes.items() if name in LIMIT_FIELDS}
    if limits:
        before = {name: getattr(group, name) for name in limits}
        values = {"before": before, "after": limits}
        record_audit(
            connection, "groups.declare", "group", [group.name], now=now, default=DECLARATION, **values
        )
