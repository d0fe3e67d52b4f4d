"""Bring the manifests in the database in line with those that code declares.

What would change is worked out first, as values, and then written in a few statements, however many
manifests there are. What an operator has set and code does not mention stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from trax.admin.policies import policy_of
from trax.errors import DefinitionError
from trax.events import Topic
from trax.records.exclusions import exclusions_to_json
from trax.records.states import ManifestOrigin, MisfirePolicy, ScheduleType
from trax.records.when import Cron, Interval, Timing
from trax.records.worker import Worker
from trax.schedule.declaration import UNSET, Timetable
from trax.schedule.due import first_look
from trax.store import manifest_endings, manifest_groups, manifests, seeding, workers
from trax.store.announcing import announce

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
CRON_COLUMNS: Final = ("schedule_type", "cron_expression", "time_zone")
UNTIMED_COLUMNS: Final = frozenset(
    {"train", "input", "priority", "origin", "batch", "app", "retry", "timeout_seconds"}
)
"""A change of these does not change when a manifest is due."""


@dataclass(frozen=True, slots=True)
class Retired:
    """The manifests that were retired, and those left for later, because `servers` declare another set."""

    retired: tuple[str, ...] = ()
    postponed: tuple[str, ...] = ()
    servers: tuple[Worker, ...] = ()


@dataclass(frozen=True, slots=True)
class SeedPlan:
    """What seeding would write: rows to add, of rows to change what differs, and how many stay as they are.

    `retired` says what a start did with the manifests that code no longer declares.
    """

    added: list[dict[str, Any]] = field(default_factory=list)
    changed: list[dict[str, Any]] = field(default_factory=list)
    unchanged: int = 0
    retired: Retired = Retired()


def seed(
    connection: Connection,
    timetable: Timetable,
    settings: Settings,
    *,
    now: datetime,
    app: str = "default",
    origin: ManifestOrigin = ManifestOrigin.DECLARED,
    on_progress: Callable[[int, int], None] | None = None,
) -> SeedPlan:
    """Write what is declared, in the order of declaration, so that parents come before children.

    What is to be changed is read once more under a lock: an operator, or a run that ends, may change it in
    the same moment, and what they write must be seen and not undone.
    """
    groups = _seed_groups(connection, timetable.groups, now=now)
    wanted = {each.external_id: each for each in timetable.manifests}
    found = seeding.existing(connection, wanted)
    plan = planned(timetable.manifests, found, groups, settings, now=now, app=app, origin=origin)
    if plan.changed:
        found |= seeding.locked(connection, [row["id"] for row in plan.changed])
        plan = planned(timetable.manifests, found, groups, settings, now=now, app=app, origin=origin)
    _write(connection, plan, on_progress or _ignore, now=now)
    _link_parents(connection, timetable.manifests, now=now)
    if changed := [row["id"] for row in plan.changed if not row.keys() - {"id"} <= UNTIMED_COLUMNS]:
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


def declaration_digest(timetable: Timetable) -> str:
    """A digest of the external ids that are declared: two servers with the same one declare the same set."""
    names = sorted(each.external_id for each in timetable.manifests)
    return sha256("\n".join(names).encode()).hexdigest()


def retire_undeclared(
    connection: Connection,
    timetable: Timetable,
    settings: Settings,
    *,
    app: str,
    now: datetime,
    only: Collection[str] | None = None,
) -> Retired:
    """Retire what this app declared before and declares no longer. Run-time manifests stay.

    A server of the same app that lives and declares another set may still want them, as in a rolling deploy:
    then they are left, to be asked for again with `only` once that server has stopped. `only` keeps an older
    server from retiring what a newer one has added since. Whoever calls this holds the leader lock.
    """
    alive_since = now - settings.worker_lost_after
    digest = declaration_digest(timetable)
    servers = tuple(workers.differing_servers(connection, app, digest, alive_since=alive_since))
    gone = seeding.undeclared(connection, (each.external_id for each in timetable.manifests), app=app)
    if only is not None:
        gone = {name: one for name, one in gone.items() if name in only}
    if servers:
        return Retired(postponed=tuple(gone), servers=servers)
    retire(connection, list(gone.values()), now=now)
    return Retired(retired=tuple(gone))


def retire(connection: Connection, ids: Sequence[int], *, now: datetime) -> None:
    """Retire manifests: they fire no more, and what waits for them in the queue is withdrawn."""
    if seeding.retire(connection, ids, now=now):
        announce(connection, Topic.FINISHED)


def renames(connection: Connection, timetable: Timetable) -> dict[str, str]:
    """The manifests whose rows get another external id, by the old one.

    Where there is a manifest of the new id already, it was renamed before, or has a history of its own.
    """
    claims = {old: each.external_id for each in timetable.manifests for old in each.renamed_from}
    if not claims:
        return {}
    found = seeding.existing(connection, {*claims, *claims.values()})
    renamed: dict[str, str] = {}
    for old, new in claims.items():
        if old in found and new not in found and new not in renamed.values():
            renamed[old] = new
    return renamed


def rename(connection: Connection, timetable: Timetable, *, now: datetime) -> None:
    """Give rows the external ids that code has for them now, history included."""
    if renamed := renames(connection, timetable):
        seeding.rename(connection, renamed, now=now)


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
    app: str = "default",
    origin: ManifestOrigin = ManifestOrigin.DECLARED,
) -> SeedPlan:
    """Compare what is declared with what is there."""
    added: list[dict[str, Any]] = []
    changed: list[dict[str, Any]] = []
    for each in declarations:
        row = found.get(each.external_id)
        wanted = _columns(each, groups[each.group].id, settings, now, origin, row)
        wanted |= _owner(app, origin, row) | _enabled(each, row, now, origin)
        if row is None:
            added.append({"external_id": each.external_id} | wanted | _first_look(each, wanted, now, now))
        elif row.retired_at is not None:
            changed.append({"id": row.id} | _differing(wanted, row) | _return(each, wanted, origin, now))
        elif differing := _differing(wanted, row):
            look = {} if differing.keys() <= UNTIMED_COLUMNS else _next_look(each, wanted, row, now)
            changed.append({"id": row.id} | differing | _differing(look, row))
    return SeedPlan(added, changed, len(declarations) - len(added) - len(changed))


def _differing(wanted: Mapping[str, Any], row: Any) -> dict[str, Any]:
    return {name: value for name, value in wanted.items() if getattr(row, name) != value}


def _return(
    each: Declaration, columns: Mapping[str, Any], origin: ManifestOrigin, now: datetime
) -> dict[str, Any]:
    """What brings a retired manifest back: it goes on as one whose schedule was edited.

    What it missed by the clock stays missed, an interval is counted from its last success, and failures from
    before are not tried again. What is asked for once at run time, though it has run before, runs once more.
    """
    planned_run = first_look(_timing(each, columns, now), "next_occurrence", now)
    is_cron = each.schedule_type is ScheduleType.CRON
    again = origin is ManifestOrigin.RUNTIME and each.schedule_type is ScheduleType.ONCE
    return {
        "retired_at": None,
        "failure_count": 0,
        "gave_up_reason": None,
        "retry_at": None,
        "attempt_cancelled": False,
        "next_scheduled_run": planned_run if is_cron else None,
        "next_due_at": planned_run if is_cron else now,
    } | ({"last_successful_run": None} if again else {})


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
    found = seeding.existing(connection, parents_elsewhere(declarations))
    check_parents(declarations, {name: row.retired_at is not None for name, row in found.items()})
    seeding.link(connection, parents, now=now)


def parents_elsewhere(declarations: Sequence[Declaration]) -> set[str]:
    """Those that are depended on and not declared."""
    named = {each.depends_on for each in declarations if each.depends_on is not None}
    return named - {each.external_id for each in declarations}


def check_parents(declarations: Sequence[Declaration], found: Mapping[str, bool]) -> None:
    """Refuse parents that are declared nowhere: `found` has those in the database, and who is retired."""
    for parent in sorted(parents_elsewhere(declarations)):
        if found.get(parent) is False:
            continue
        child = next(each.external_id for each in declarations if each.depends_on == parent)
        wrong = (
            "is retired; schedule it again, or take the dependency away"
            if parent in found
            else "does not exist; schedule the parent first"
        )
        raise DefinitionError(f"{child!r} depends on {parent!r}, which {wrong}")


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
        "priority": each.priority,
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


def _owner(app: str, origin: ManifestOrigin, row: Any) -> dict[str, Any]:
    """What code declares stays its app's, also when somebody schedules it anew at run time."""
    stays = origin is ManifestOrigin.RUNTIME and row is not None and row.retired_at is None
    return {} if stays else {"origin": origin.value, "app": app}


def _enabled(each: Declaration, row: Any, now: datetime, origin: ManifestOrigin) -> dict[str, bool]:
    """Nothing where code does not say it: an operator may have said it."""
    if each.enabled is not None:
        return {"enabled": each.enabled}
    if row is None or _was_done_for_good(each, row):
        return {"enabled": True}
    is_again = origin is ManifestOrigin.RUNTIME and _is_asked_for_once_more(each, row, now)
    return {"enabled": True} if is_again else {}


def _is_asked_for_once_more(each: Declaration, row: Any, now: datetime) -> bool:
    """What was to run once and was cancelled was switched off by that: who asks anew switches it on.

    So does who asks anew for what ran once and was retired.
    """
    is_open = row.last_successful_run is None or row.retired_at is not None
    was_once = row.schedule_type == ScheduleType.ONCE and is_open
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
    planned_run = first_look(_timing(each, columns, created_at), each.start, now)
    return {"next_scheduled_run": planned_run, "next_due_at": planned_run or now, "last_scheduled_for": None}


def _next_look(
    each: Declaration, columns: Mapping[str, Any], row: Any, now: datetime
) -> dict[str, datetime | None]:
    """Look at a changed manifest at once; a moment set beforehand is kept unless its schedule changed."""
    kept = {"next_due_at": now, "last_scheduled_for": row.last_scheduled_for}
    changed = {name for name in SCHEDULE_COLUMNS if getattr(row, name) != columns[name]}
    is_cron, has_run = each.schedule_type is ScheduleType.CRON, row.last_successful_run is not None
    if is_cron and not changed.isdisjoint(CRON_COLUMNS):
        return kept | _next_cron_run(each, columns, row, now)
    if not changed or (is_cron and not has_run):
        return kept | {"next_scheduled_run": row.next_scheduled_run}
    if has_run:
        return kept | {"next_scheduled_run": None}
    return kept | {"next_scheduled_run": first_look(_timing(each, columns, row.created_at), each.start, now)}


def _next_cron_run(
    each: Declaration, columns: Mapping[str, Any], row: Any, now: datetime
) -> dict[str, datetime | None]:
    """Whoever edits a cron schedule starts nothing: it goes on with the next occurrence of the new one.

    What has failed is tried again meanwhile, and what is still new begins as code says. What the new schedule
    would have had before was not missed, so what makes up each occurrence counts from now.
    """
    is_new = row.last_successful_run is None and row.last_scheduled_for is None
    if is_new or (row.failure_count and not row.attempt_cancelled):
        planned_run = first_look(_timing(each, columns, row.created_at), each.start, now) if is_new else None
        return {"next_scheduled_run": planned_run}
    next_run = first_look(_timing(each, columns, row.created_at), "next_occurrence", now)
    makes_up_all = columns["misfire_policy"] == MisfirePolicy.FIRE_ALL
    return {"next_scheduled_run": next_run} | ({"last_scheduled_for": now} if makes_up_all else {})


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
