"""Bring the manifests in the database in line with those that code declares.

What would change is worked out first, as values, and then written in a few statements, however many
manifests there are. What an operator has set and code does not mention stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from trax.admin.policies import policy_of
from trax.errors import DefinitionError
from trax.records.exclusions import exclusions_to_json
from trax.records.states import ManifestOrigin, ScheduleType
from trax.records.when import Cron, Interval, Timing
from trax.schedule.declaration import UNSET, Timetable
from trax.schedule.due import first_look
from trax.store import manifest_endings, manifest_groups, manifests, seeding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from trax.records import ManifestGroup
    from trax.schedule.declaration import Declaration, GroupDeclaration
    from trax.settings import Settings
    from trax.store import Connection
    from trax.train import Retry

AT_ONCE = 1000
SCHEDULE_COLUMNS = (
    "schedule_type",
    "cron_expression",
    "time_zone",
    "interval_seconds",
    "anchored",
    "scheduled_at",
    "variance_seconds",
)


@dataclass(frozen=True, slots=True)
class SeedPlan:
    """What seeding would write: rows to add, rows to change, and how many stay as they are."""

    added: list[dict[str, Any]] = field(default_factory=list)
    changed: list[dict[str, Any]] = field(default_factory=list)
    unchanged: int = 0


def seed(
    connection: Connection,
    timetable: Timetable,
    settings: Settings,
    *,
    now: datetime,
    origin: ManifestOrigin = ManifestOrigin.DECLARED,
    on_progress: Callable[[int, int], None] | None = None,
) -> SeedPlan:
    """Write what is declared, in the order of declaration, so that parents come before children."""
    groups = _seed_groups(connection, timetable.groups, now=now)
    wanted = {each.external_id: each for each in timetable.manifests}
    found = seeding.existing(connection, wanted)
    plan = planned(timetable.manifests, found, groups, settings, now=now, origin=origin)
    _write(connection, plan, on_progress or _ignore, now=now)
    _link_parents(connection, timetable.manifests, now=now)
    if changed := [row["id"] for row in plan.changed]:
        manifest_endings.wake_dependents(connection, changed, now=now)  # they may have waited for this
    return plan


def without_operators(timetable: Timetable) -> Timetable:
    """The same, with all that code leaves open set to its default: seeding it undoes operators' edits."""
    return Timetable(
        manifests=tuple(
            each if each.enabled is not None else replace(each, enabled=True) for each in timetable.manifests
        ),
        groups=tuple(_with_defaults(group) for group in timetable.groups),
    )


def prune(connection: Connection, timetable: Timetable) -> int:
    """Delete what an earlier version of the code declared and this one does not. Run-time manifests stay."""
    gone = seeding.undeclared(connection, (each.external_id for each in timetable.manifests))
    seeding.delete_manifests(connection, gone)
    return len(gone)


def prune_groups(connection: Connection, timetable: Timetable) -> int:
    """Delete the groups that hold nothing and that code does not name."""
    return seeding.delete_empty_groups(connection, (group.name for group in timetable.groups))


def planned(
    declarations: Sequence[Declaration],
    found: Mapping[str, Any],
    groups: Mapping[str, ManifestGroup],
    settings: Settings,
    *,
    now: datetime,
    origin: ManifestOrigin = ManifestOrigin.DECLARED,
) -> SeedPlan:
    """Compare what is declared with what is there."""
    added: list[dict[str, Any]] = []
    changed: list[dict[str, Any]] = []
    for each in declarations:
        row = found.get(each.external_id)
        wanted = _columns(each, groups[each.group].id, settings, now, origin, row)
        if row is None:
            added.append({"external_id": each.external_id} | wanted | _first_look(each, wanted, now, now))
        elif any(getattr(row, name) != value for name, value in wanted.items()):
            changed.append({"id": row.id} | wanted | _next_look(each, wanted, row, now))
    return SeedPlan(added, changed, len(declarations) - len(added) - len(changed))


def _with_defaults(group: GroupDeclaration) -> GroupDeclaration:
    defaults = {"max_active_jobs": None, "priority": 0, "enabled": True}
    unsaid = {name: value for name, value in defaults.items() if getattr(group, name) is UNSET}
    return replace(group, **unsaid)  # pyright: ignore[reportArgumentType]


def _seed_groups(
    connection: Connection, groups: Iterable[GroupDeclaration], *, now: datetime
) -> dict[str, ManifestGroup]:
    groups = list(groups)
    found = manifest_groups.named(connection, (group.name for group in groups), now=now)
    for group in groups:
        kept = found[group.name]
        changes = group_changes(group, kept)
        if changes:
            manifest_groups.change(connection, group.name, changes, now=now)
        if changes.get("enabled"):
            manifests.look_at_group(connection, kept.id, now=now)
    return found


def group_changes(group: GroupDeclaration, kept: ManifestGroup) -> dict[str, Any]:
    """What code says of a group that is otherwise there."""
    said = {name: getattr(group, name) for name in ("max_active_jobs", "priority", "enabled")}
    return {
        name: value for name, value in said.items() if value is not UNSET and value != getattr(kept, name)
    }


def _write(
    connection: Connection, plan: SeedPlan, on_progress: Callable[[int, int], None], *, now: datetime
) -> None:
    done, total = 0, len(plan.added) + len(plan.changed)
    for write, rows in ((seeding.add, plan.added), (seeding.change, plan.changed)):
        for start in range(0, len(rows), AT_ONCE):
            some = rows[start : start + AT_ONCE]
            write(connection, some, now=now)
            done += len(some)
            on_progress(done, total)


def _link_parents(connection: Connection, declarations: Sequence[Declaration], *, now: datetime) -> None:
    parents = {each.external_id: each.depends_on for each in declarations}
    elsewhere = parents_elsewhere(declarations)
    check_parents(declarations, elsewhere - seeding.existing(connection, elsewhere).keys())
    seeding.link(connection, parents, now=now)


def parents_elsewhere(declarations: Sequence[Declaration]) -> set[str]:
    """Those that are depended on and not declared."""
    named = {each.depends_on for each in declarations if each.depends_on is not None}
    return named - {each.external_id for each in declarations}


def check_parents(declarations: Sequence[Declaration], missing: Iterable[str]) -> None:
    parents = {each.external_id: each.depends_on for each in declarations}
    if missing := sorted(missing):
        child = next(one for one, parent in parents.items() if parent == missing[0])
        raise DefinitionError(
            f"{child!r} depends on {missing[0]!r}, which does not exist; schedule the parent first"
        )


def _columns(
    each: Declaration, group_id: int, settings: Settings, now: datetime, origin: ManifestOrigin, row: Any
) -> dict[str, Any]:
    """The row's columns that code decides, as they should be."""
    interval = each.schedule if isinstance(each.schedule, Interval) else None
    cron = each.schedule if isinstance(each.schedule, Cron) else None
    return {
        "train": each.train,
        "input": each.input,
        "group_id": group_id,
        "enabled": _enabled(each, row, now, origin),
        "priority": each.priority,
        "origin": _origin(origin, row),
        "batch": each.batch,
        "schedule_type": each.schedule_type.value,
        "cron_expression": cron.expression if cron else None,
        "time_zone": cron.time_zone if cron else "UTC",
        "interval_seconds": interval.seconds if interval else None,
        "anchored": interval.anchored if interval else False,
        "scheduled_at": _once_at(each, row, now, origin),
        "variance_seconds": each.schedule.variance_seconds if each.schedule else None,
        "exclusions": exclusions_to_json(each.exclusions),
        "misfire_policy": str(each.misfire_policy or settings.default_misfire_policy),
        "misfire_limit": each.misfire_limit,
        "misfire_threshold_seconds": _seconds(each.misfire_threshold),
        "max_instances": each.max_instances,
        "max_retries": _max_retries(each, settings),
        "retry": _retry_json(each.retry),
        "timeout_seconds": each.timeout.total_seconds() if each.timeout else None,
    }


def _origin(origin: ManifestOrigin, row: Any) -> str:
    """What code declares stays declared, also when somebody schedules it anew at run time."""
    return row.origin if row is not None and origin is ManifestOrigin.RUNTIME else origin.value


def _enabled(each: Declaration, row: Any, now: datetime, origin: ManifestOrigin) -> bool:
    """What code does not say, an operator may have said."""
    if each.enabled is not None:
        return each.enabled
    if row is None or _was_done_for_good(each, row):
        return True
    return row.enabled or (origin is ManifestOrigin.RUNTIME and _is_asked_for_once_more(each, row, now))


def _is_asked_for_once_more(each: Declaration, row: Any, now: datetime) -> bool:
    """What was to run once and was cancelled was switched off by that: who asks anew switches it on."""
    was_once = row.schedule_type == ScheduleType.ONCE and row.last_successful_run is None
    return was_once and each.schedule_type is ScheduleType.ONCE and row.scheduled_at <= now


def _was_done_for_good(each: Declaration, row: Any) -> bool:
    """What ran once was switched off by its success, not by an operator: a new schedule switches it on."""
    has_run_once = row.schedule_type == ScheduleType.ONCE and row.last_successful_run is not None
    return has_run_once and each.schedule_type is not ScheduleType.ONCE


def _once_at(each: Declaration, row: Any, now: datetime, origin: ManifestOrigin) -> datetime | None:
    """A restart must not push back what is to run once, so its moment stays. Who asks anew sets it anew."""
    if each.schedule_type is not ScheduleType.ONCE or each.delay is None:
        return None
    if origin is ManifestOrigin.DECLARED and row is not None and row.scheduled_at:
        return row.scheduled_at
    return now + each.delay


def _max_retries(each: Declaration, settings: Settings) -> int:
    if each.max_retries is not None:
        return each.max_retries
    return each.retry.max_retries if each.retry else settings.default_max_retries


def _retry_json(retry: Retry | None) -> str | None:
    return None if retry is None else policy_of(retry).to_json()


def _seconds(duration: timedelta | None) -> int | None:
    return None if duration is None else int(duration.total_seconds())


def _first_look(
    each: Declaration, columns: Mapping[str, Any], created_at: datetime, now: datetime
) -> dict[str, datetime | None]:
    """When a manifest that has not succeeded yet is looked at for the first time."""
    if each.start == "now":
        return {"next_scheduled_run": None, "next_due_at": now}
    planned_run = first_look(_timing(each, columns, created_at), each.start, now)
    return {"next_scheduled_run": planned_run, "next_due_at": planned_run}


def _next_look(
    each: Declaration, columns: Mapping[str, Any], row: Any, now: datetime
) -> dict[str, datetime | None]:
    """Look at a changed manifest at once; a moment set beforehand is kept unless its schedule changed."""
    if all(getattr(row, name) == columns[name] for name in SCHEDULE_COLUMNS):
        return {"next_scheduled_run": row.next_scheduled_run, "next_due_at": now}
    if row.last_successful_run is None:
        return _first_look(each, columns, row.created_at, now) | {"next_due_at": now}
    return {"next_scheduled_run": None, "next_due_at": now}


def _timing(each: Declaration, columns: Mapping[str, Any], created_at: datetime) -> Timing:
    """As much of a timing as the first look needs."""
    return Timing(
        schedule_type=each.schedule_type,
        schedule=each.schedule,
        time_zone=columns["time_zone"],
        exclusions=each.exclusions,
        created_at=created_at,
    )


def _ignore(_done: int, _total: int) -> None:
    """Nobody watches."""
