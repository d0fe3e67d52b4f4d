"""Seed: write the manifests and groups that code declares to the database, and retire undeclared ones.

The changes are computed first, as values, and then written in a few statements, however many manifests there
are. A field that code does not set keeps the operator's value.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from trax.engine.retry import policy_of
from trax.engine.seed_groups import (
    KeptValue,
    drop_groups,
    options_by_name,
    seed_groups,
    seed_groups_at_run_time,
    with_default_options,
)
from trax.errors import DefinitionError
from trax.events import Topic
from trax.records.schedule import Cron, Interval, Timing, exclusions_to_json
from trax.records.states import ManifestOrigin, MisfirePolicy, ScheduleType
from trax.records.worker import WorkerRecord
from trax.schedule.declaration import Timetable
from trax.schedule.due import first_scheduled_run
from trax.store import workers
from trax.store.announce import announce
from trax.store.groups import NO_CODE
from trax.store.manifests import manifest_results, manifest_seed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from trax.records import ManifestGroup
    from trax.schedule.declaration import Declaration
    from trax.settings import Settings
    from trax.store import Connection
    from trax.store.groups import GroupCode
    from trax.train import Retry

BATCH_SIZE = 1000
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
    {"train", "input", "priority", "origin", "batch", "app", "declared_enabled", "retry", "timeout_seconds"}
)
"""Columns that do not affect when a manifest is due."""


@dataclass(frozen=True, slots=True)
class RetirementResult:
    """The retired manifests, and those postponed because live `servers` declare other manifests."""

    retired: tuple[str, ...] = ()
    postponed: tuple[str, ...] = ()
    servers: tuple[WorkerRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class SeedPlan:
    """What seeding writes: new rows, differing columns of changed rows, and the number of unchanged rows.

    `retired` has the manifests that code no longer declares, `kept` the operators' values that stay.
    """

    added: list[dict[str, Any]] = field(default_factory=list)
    changed: list[dict[str, Any]] = field(default_factory=list)
    unchanged: int = 0
    retired: RetirementResult = RetirementResult()
    kept: list[KeptValue] = field(default_factory=list[KeptValue])


def seed(
    connection: Connection,
    timetable: Timetable,
    settings: Settings,
    *,
    now: datetime,
    app: str = "default",
    origin: ManifestOrigin = ManifestOrigin.DECLARED,
    code: GroupCode = NO_CODE,
    resets: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> SeedPlan:
    """Write the declared manifests, in the order of declaration, so that parents come before children.

    Rows to change are read again under a lock: an operator or the end of a run may change them at the same
    time, and their changes must not be lost. At run time, `code` has the groups that code declares. With
    `resets`, operators' values are not kept.
    """
    if not timetable.manifests and not timetable.groups:
        return SeedPlan()
    if origin is ManifestOrigin.DECLARED:
        groups = seed_groups(connection, timetable, app=app, now=now, resets=resets)
    else:
        groups = seed_groups_at_run_time(connection, timetable, code=code, now=now)
    declared = {each.external_id: each for each in timetable.manifests}
    rows = manifest_seed.load_existing(connection, declared)
    refuse_other_apps(connection, rows.values(), settings, app=app, now=now)
    options: dict[str, Any] = {"now": now, "app": app, "origin": origin, "resets": resets}
    plan = build_seed_plan(timetable.manifests, rows, groups.stored, settings, **options)
    if plan.changed:
        rows |= manifest_seed.load_for_update(connection, [row["id"] for row in plan.changed])
        plan = build_seed_plan(timetable.manifests, rows, groups.stored, settings, **options)
    _write(connection, plan, on_progress or _ignore_progress, now=now)
    _link_parents(connection, timetable.manifests, now=now)
    if changed := [row["id"] for row in plan.changed if not row.keys() - {"id"} <= UNTIMED_COLUMNS]:
        manifest_results.mark_dependents_due(connection, changed, now=now)  # they may have waited for this
    return replace(plan, kept=[*groups.kept, *plan.kept])


def refuse_other_apps(
    connection: Connection, rows: Iterable[Any], settings: Settings, *, app: str, now: datetime
) -> None:
    """Refuse manifests that the code of another app declares, while a server of that app is alive."""
    others = [
        row
        for row in rows
        if row.app != app and row.origin == ManifestOrigin.DECLARED and row.retired_at is None
    ]
    if not others:
        return
    alive = {
        server.app: server
        for server in workers.servers(connection, alive_since=now - settings.worker_lost_after)
    }
    for row in others:
        if server := alive.get(row.app):
            raise DefinitionError(
                f"manifest {row.external_id!r} is declared by app {row.app!r}, which runs on {server.host} "
                f"(process {server.pid}), so app {app!r} cannot declare it too; give one of them another "
                f"external id, or stop all servers of app {row.app!r} first if {app!r} replaces it"
            )


def with_code_defaults(timetable: Timetable) -> Timetable:
    """The same declarations, with every field that code does not set at its default."""
    return Timetable(
        manifests=tuple(
            each if each.enabled is not None else replace(each, enabled=True) for each in timetable.manifests
        ),
        groups=tuple(with_default_options(group) for group in timetable.groups),
    )


def declaration_digest(timetable: Timetable) -> str:
    """A digest of the declared names; it is equal on servers that declare the same manifests and groups."""
    manifests = sorted(each.external_id for each in timetable.manifests)
    names = [*manifests, "", *sorted(options_by_name(timetable))]
    return sha256("\n".join(names).encode()).hexdigest()


def retire_undeclared(
    connection: Connection,
    timetable: Timetable,
    settings: Settings,
    *,
    app: str,
    now: datetime,
    only: Collection[str] | None = None,
) -> RetirementResult:
    """Retire the manifests that this app no longer declares, and give up its groups. Run-time manifests stay.

    If a live server of the same app declares others, as in a rolling deploy, they are postponed:
    call again with `only` once that server has stopped. `only` keeps an older server from retiring what a
    newer one has added since. The caller must hold the leader lock.
    """
    alive_since = now - settings.worker_lost_after
    digest = declaration_digest(timetable)
    servers = tuple(workers.find_differing_servers(connection, app, digest, alive_since=alive_since))
    gone = manifest_seed.find_undeclared(
        connection, (each.external_id for each in timetable.manifests), app=app
    )
    if only is not None:
        gone = {name: manifest_id for name, manifest_id in gone.items() if name in only}
    if servers:
        return RetirementResult(postponed=tuple(gone), servers=servers)
    retire(connection, list(gone.values()), now=now)
    if only is None:
        drop_groups(connection, timetable, app=app, now=now)
    return RetirementResult(retired=tuple(gone))


def retire(connection: Connection, ids: Sequence[int], *, now: datetime) -> None:
    """Retire manifests: they no longer run, and their queued entries are withdrawn."""
    if manifest_seed.retire(connection, ids, now=now):
        announce(connection, Topic.FINISHED)


def find_renames(connection: Connection, timetable: Timetable) -> dict[str, str]:
    """The manifests to rename: old external id to new.

    If a manifest with the new id exists, it was renamed before or has its own history, and nothing is
    renamed.
    """
    claims = {old: each.external_id for each in timetable.manifests for old in each.renamed_from}
    if not claims:
        return {}
    rows = manifest_seed.load_existing(connection, {*claims, *claims.values()})
    renamed: dict[str, str] = {}
    for old, new in claims.items():
        if old in rows and new not in rows and new not in renamed.values():
            renamed[old] = new
    return renamed


def rename(
    connection: Connection, timetable: Timetable, settings: Settings, *, app: str, now: datetime
) -> None:
    """Give manifests the external ids that code declares now; their history stays with them."""
    if renamed := find_renames(connection, timetable):
        rows = manifest_seed.load_existing(connection, renamed)
        refuse_other_apps(connection, rows.values(), settings, app=app, now=now)
        manifest_seed.rename(connection, renamed, now=now)


def build_seed_plan(
    declarations: Sequence[Declaration],
    rows: Mapping[str, Any],
    groups: Mapping[str, ManifestGroup],
    settings: Settings,
    *,
    now: datetime,
    app: str = "default",
    origin: ManifestOrigin = ManifestOrigin.DECLARED,
    resets: bool = False,
) -> SeedPlan:
    """Compare the declarations with the stored rows. With `resets`, operators' values are not kept."""
    added: list[dict[str, Any]] = []
    changed: list[dict[str, Any]] = []
    kept: list[KeptValue] = []
    for each in declarations:
        row = rows.get(each.external_id)
        columns = _columns(each, groups[each.group].id, settings, now, origin, row)
        columns |= _owner_columns(app, origin, row) | _columns_of_enabled(each, row, now, origin)
        may_keep = not resets and origin is ManifestOrigin.DECLARED
        if row is None:
            added.append({"external_id": each.external_id} | columns | _first_due(each, columns, now, now))
            continue
        if may_keep and _keeps_enabled(each, row) and columns.pop("enabled") != row.enabled:
            kept.append(KeptValue("manifest", each.external_id, "enabled", row.enabled, each.enabled))
        if row.retired_at is not None:
            changed.append(
                {"id": row.id} | _differences(columns, row) | _columns_of_returned(each, columns, origin, now)
            )
        elif differences := _differences(columns, row):
            is_untimed = differences.keys() <= UNTIMED_COLUMNS
            next_due = {} if is_untimed else _next_due(each, columns, row, now)
            changed.append({"id": row.id} | differences | _differences(next_due, row))
    return SeedPlan(added, changed, len(declarations) - len(added) - len(changed), kept=kept)


def _differences(wanted: Mapping[str, Any], row: Any) -> dict[str, Any]:
    return {name: value for name, value in wanted.items() if getattr(row, name) != value}


def _columns_of_returned(
    each: Declaration, columns: Mapping[str, Any], origin: ManifestOrigin, now: datetime
) -> dict[str, Any]:
    """The columns that bring a retired manifest back; it continues like one whose schedule was edited.

    Missed cron occurrences stay missed, an interval is counted from the last success, and earlier failures
    are not retried. A `once` manifest scheduled again at run time runs again.
    """
    planned_run = first_scheduled_run(_build_timing(each, columns, now), "next_occurrence", now)
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


def _write(
    connection: Connection, plan: SeedPlan, on_progress: Callable[[int, int], None], *, now: datetime
) -> None:
    done, total = 0, len(plan.added) + len(plan.changed)
    for write, rows in ((manifest_seed.add, plan.added), (manifest_seed.change, plan.changed)):
        for start in range(0, len(rows), BATCH_SIZE):
            batch = rows[start : start + BATCH_SIZE]
            write(connection, batch, now=now)
            done += len(batch)
            on_progress(done, total)


def _link_parents(connection: Connection, declarations: Sequence[Declaration], *, now: datetime) -> None:
    parents = {each.external_id: each.depends_on for each in declarations}
    rows = manifest_seed.load_existing(connection, parents_outside(declarations))
    check_parents(declarations, {name: row.retired_at is not None for name, row in rows.items()})
    manifest_seed.link(connection, parents, now=now)


def parents_outside(declarations: Sequence[Declaration]) -> set[str]:
    """The parents that are not among these declarations."""
    parents = {each.depends_on for each in declarations if each.depends_on is not None}
    return parents - {each.external_id for each in declarations}


def check_parents(declarations: Sequence[Declaration], stored_parents: Mapping[str, bool]) -> None:
    """Refuse parents that do not exist or are retired; `stored_parents` says which are retired."""
    for parent in sorted(parents_outside(declarations)):
        if stored_parents.get(parent) is False:
            continue
        child = next(each.external_id for each in declarations if each.depends_on == parent)
        problem = (
            "is retired; schedule it again, or remove the dependency"
            if parent in stored_parents
            else "does not exist; schedule the parent first"
        )
        raise DefinitionError(f"manifest {child!r} depends on {parent!r}, which {problem}")


def _columns(
    each: Declaration, group_id: int, settings: Settings, now: datetime, origin: ManifestOrigin, row: Any
) -> dict[str, Any]:
    """The columns that code sets, with their values."""
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
        "scheduled_at": _run_once_at(each, row, now, origin),
        "variance_seconds": each.schedule.variance_seconds if each.schedule else None,
        "exclusions": exclusions_to_json(each.exclusions),
        "misfire_policy": str(each.misfire_policy or settings.default_misfire_policy),
        "misfire_limit": each.misfire_limit,
        "misfire_threshold_seconds": _seconds(each.misfire_threshold),
        "max_instances": each.max_instances,
        "max_retries": _max_attempts(each, settings),
        "retry": _retry_json(each.retry),
        "timeout_seconds": each.timeout.total_seconds() if each.timeout else None,
    }


def _owner_columns(app: str, origin: ManifestOrigin, row: Any) -> dict[str, Any]:
    """Origin and app. A declared manifest keeps both when it is scheduled again at run time."""
    stays = origin is ManifestOrigin.RUNTIME and row is not None and row.retired_at is None
    return {} if stays else {"origin": origin.value, "app": app}


def _keeps_enabled(each: Declaration, row: Any) -> bool:
    """Whether a start keeps the stored `enabled`: code sets the same value as at the last start."""
    is_in_use = row.retired_at is None and not _has_completed_once(each, row)
    return is_in_use and each.enabled is not None and row.declared_enabled == each.enabled


def _columns_of_enabled(
    each: Declaration, row: Any, now: datetime, origin: ManifestOrigin
) -> dict[str, bool | None]:
    """The column `enabled`, missing where code does not set it, and at a start what code declared."""
    declared = {"declared_enabled": each.enabled} if origin is ManifestOrigin.DECLARED else {}
    if each.enabled is not None:
        return {"enabled": each.enabled, **declared}
    if row is None or _has_completed_once(each, row):
        return {"enabled": True, **declared}
    is_again = origin is ManifestOrigin.RUNTIME and _is_scheduled_again(each, row, now)
    return {"enabled": True} if is_again else declared


def _is_scheduled_again(each: Declaration, row: Any, now: datetime) -> bool:
    """Whether scheduling a `once` manifest again at run time enables it.

    It does if it was cancelled, which disabled it, or if it has run and was retired.
    """
    is_open = row.last_successful_run is None or row.retired_at is not None
    was_once = row.schedule_type == ScheduleType.ONCE and is_open
    return was_once and each.schedule_type is ScheduleType.ONCE and row.scheduled_at <= now


def _has_completed_once(each: Declaration, row: Any) -> bool:
    """Whether a `once` manifest was disabled by its own success: then a new schedule enables it."""
    has_run_once = row.schedule_type == ScheduleType.ONCE and row.last_successful_run is not None
    return has_run_once and each.schedule_type is not ScheduleType.ONCE


def _run_once_at(each: Declaration, row: Any, now: datetime, origin: ManifestOrigin) -> datetime | None:
    """When a `once` manifest runs. A restart keeps the stored time; a call at run time sets a new one."""
    if each.schedule_type is not ScheduleType.ONCE or each.delay is None:
        return None
    if origin is ManifestOrigin.DECLARED and row is not None and row.scheduled_at:
        return row.scheduled_at
    return now + each.delay


def _max_attempts(each: Declaration, settings: Settings) -> int:
    if each.max_attempts is not None:
        return each.max_attempts
    return each.retry.max_attempts if each.retry else settings.default_max_attempts


def _retry_json(retry: Retry | None) -> str | None:
    return None if retry is None else policy_of(retry).to_json()


def _seconds(duration: timedelta | None) -> int | None:
    return None if duration is None else int(duration.total_seconds())


def _first_due(
    each: Declaration, columns: Mapping[str, Any], created_at: datetime, now: datetime
) -> dict[str, datetime | None]:
    """The first due time of a new manifest."""
    planned_run = first_scheduled_run(_build_timing(each, columns, created_at), each.start, now)
    return {"next_scheduled_run": planned_run, "next_due_at": planned_run or now, "last_scheduled_for": None}


def _next_due(
    each: Declaration, columns: Mapping[str, Any], row: Any, now: datetime
) -> dict[str, datetime | None]:
    """A changed manifest is due at once; its planned run is kept unless its schedule changed."""
    kept = {"next_due_at": now, "last_scheduled_for": row.last_scheduled_for}
    changed = {name for name in SCHEDULE_COLUMNS if getattr(row, name) != columns[name]}
    is_cron, has_run = each.schedule_type is ScheduleType.CRON, row.last_successful_run is not None
    if is_cron and not changed.isdisjoint(CRON_COLUMNS):
        return kept | _next_cron_run(each, columns, row, now)
    if not changed or (is_cron and not has_run):
        return kept | {"next_scheduled_run": row.next_scheduled_run}
    if has_run:
        return kept | {"next_scheduled_run": None}
    return kept | {
        "next_scheduled_run": first_scheduled_run(
            _build_timing(each, columns, row.created_at), each.start, now
        )
    }


def _next_cron_run(
    each: Declaration, columns: Mapping[str, Any], row: Any, now: datetime
) -> dict[str, datetime | None]:
    """An edited cron schedule starts nothing: it continues with the next occurrence of the new schedule.

    A failed manifest is still retried, and a new one starts as code declares. Past occurrences of the new
    schedule were not missed, so `fire_all` counts from now.
    """
    is_new = row.last_successful_run is None and row.last_scheduled_for is None
    if is_new or (row.failure_count and not row.attempt_cancelled):
        planned_run = (
            first_scheduled_run(_build_timing(each, columns, row.created_at), each.start, now)
            if is_new
            else None
        )
        return {"next_scheduled_run": planned_run}
    next_run = first_scheduled_run(_build_timing(each, columns, row.created_at), "next_occurrence", now)
    fires_all = columns["misfire_policy"] == MisfirePolicy.FIRE_ALL
    return {"next_scheduled_run": next_run} | ({"last_scheduled_for": now} if fires_all else {})


def _build_timing(each: Declaration, columns: Mapping[str, Any], created_at: datetime) -> Timing:
    """The part of a timing that the first due time needs."""
    return Timing(
        schedule_type=each.schedule_type,
        schedule=each.schedule,
        time_zone=columns["time_zone"],
        exclusions=each.exclusions,
        created_at=created_at,
    )


def _ignore_progress(_done: int, _total: int) -> None:
    """The default for `on_progress`."""
