"""Read the beat schedule of a Celery app. Celery computes its own run times."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Any, Final, cast

from trax.cli.importing import cron_rules
from trax.cli.importing.cron_rules import cron_for_both_days
from trax.cli.importing.foreign import MOMENTS_COMPARED, NO_LIMIT, ImportedJob, interval_schedule, task_input
from trax.errors import DefinitionError, format_value, import_extra

if TYPE_CHECKING:
    from collections.abc import Iterator

GENERAL_REMARKS: Final = (
    "beat sends the next task while the last one is still running; in Trax it waits",
    "beat counts intervals from the last send, Trax from the creation of the manifest",
    "a task without time_limit has no timeout; timeout=NO_LIMIT does the same",
    "Celery sets retries in the task's code; in Trax they are the option max_attempts",
)
LIMITS: Final = ("time_limit", "soft_time_limit")
"""Celery's time limits; the first one that is set becomes the timeout."""
FIELDS: Final = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")


def read_beat(source: Any, now: datetime) -> Iterator[ImportedJob]:
    """Every entry of a Celery app's `beat_schedule`, or of a `beat_schedule` mapping."""
    celery = import_extra("celery", extra="celery", feature="reading a beat schedule")
    if isinstance(source, Mapping):
        app, entries = celery.Celery(set_as_current=False), cast("Mapping[str, Any]", source)
    elif isinstance(source, celery.Celery):
        app = source
        app.finalize()  # tasks may add themselves to the schedule in on_after_finalize
        entries = app.conf.beat_schedule
    else:
        raise DefinitionError(f"{format_value(source)} is neither a Celery app nor a beat_schedule")
    for name, entry in entries.items():
        try:
            yield _entry(name, entry, app, now)
        except Exception as error:  # noqa: BLE001 - an entry can hold anything, and Celery raise anything
            why = f"cannot be read ({error!r}); runs on demand only"
            yield ImportedJob(external_id=str(name), task=str(name), schedule_text="unread", remarks=(why,))


def _entry(name: str, entry: Mapping[str, Any], app: Any, now: datetime) -> ImportedJob:
    schedules = import_extra("celery.schedules", extra="celery", feature="reading a beat schedule")
    schedule = schedules.maybe_schedule(entry["schedule"], entry.get("relative", False), app=app)
    value, about_input = task_input(entry.get("args") or (), entry.get("kwargs") or {})
    found = ImportedJob(
        external_id=name,
        task=entry["task"],
        schedule_text=repr(schedule).strip("<>").removesuffix(" (m/h/dM/MY/d)"),
        input=value,
        theirs=_moments(schedule, app, now),
    )
    found = _with_schedule(found, schedule, app, schedules)
    options, about_options = _options(entry.get("options") or {})
    return replace(
        found,
        options={**found.options, **options},
        timeout=_timeout(entry, app),
        remarks=(*found.remarks, *about_input, *about_options),
    )


def _with_schedule(job: ImportedJob, schedule: Any, app: Any, schedules: Any) -> ImportedJob:
    """Convert the schedule. Subclasses of Celery's types are not: they may compute anything."""
    if type(schedule) is schedules.crontab:
        return _with_cron(job, schedule, app)
    if type(schedule) is schedules.schedule:
        return _with_interval(job, schedule.run_every, relative=schedule.relative)
    kind = type(schedule).__name__
    why = (
        "Trax has no sunrise and sunset schedules"
        if isinstance(schedule, schedules.solar)
        else "its times are computed by its own code"
    )
    return replace(
        job, remarks=(f"a schedule of type {kind} cannot be converted: {why}; runs on demand only",)
    )


def _with_cron(job: ImportedJob, schedule: Any, app: Any) -> ImportedJob:
    fields = [
        _field(field, getattr(schedule, name), getattr(schedule, f"_orig_{name}"))
        for field, name in zip(cron_rules.FIELDS, FIELDS, strict=True)
    ]
    zone = str(app.timezone)
    try:
        when, options, remarks = cron_for_both_days(fields, zone)
    except DefinitionError as error:
        return replace(job, remarks=(f"cannot be converted: {error}",))
    deadline = app.conf.beat_cron_starting_deadline
    if deadline is not None and not options:
        options |= {"on_misfire": "do_nothing", "misfire_threshold": timedelta(seconds=ceil(deadline))}
    return replace(job, when=when, options=options, remarks=remarks)


def _with_interval(job: ImportedJob, run_every: timedelta, *, relative: bool) -> ImportedJob:
    when, remarks = interval_schedule(run_every)
    if relative:
        remarks += ("relative=True rounds run times to the clock; use cron(…) for that in Trax",)
    return replace(job, when=when, options={"start": "next_occurrence"}, remarks=remarks)


def _timeout(entry: Mapping[str, Any], app: Any) -> timedelta:
    """The time limit of the entry, of its task (if imported) or of the app; otherwise no limit."""
    message: Mapping[str, Any] = entry.get("options") or {}
    task = app.tasks.get(entry["task"])
    for name in LIMITS:
        seconds = message.get(name) or getattr(task, name, None) or getattr(app.conf, f"task_{name}")
        if seconds:
            return timedelta(seconds=ceil(seconds))
    return NO_LIMIT


def _options(options: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Convert message options: a queue becomes a group, others get a remark."""
    left = {name: value for name, value in options.items() if name not in {"queue", *LIMITS}}
    remarks = [f"option {name}={value!r} has no equivalent in Trax" for name, value in left.items()]
    if "expires" in left:
        remarks.append("expires drops a task that did not start in time; in Trax it waits until it can run")
    queue = options.get("queue")
    if queue is None:
        return {}, tuple(remarks)
    name = str(getattr(queue, "name", queue))
    return {"group": name}, (f"queue {name!r} becomes a group: set its limits with app.group(…)", *remarks)


def _field(field: cron_rules.CrontabField, numbers: set[int], written: Any) -> str:
    """The original text if it means the same in Trax; otherwise its numbers."""
    text = cron_rules.shorten_names(written) if isinstance(written, str) else ""
    if "*" in text or set(cron_rules.numbers_or_empty(field, text)) == numbers:
        return text
    return ",".join(map(str, sorted(numbers)))


def _moments(schedule: Any, app: Any, now: datetime) -> tuple[datetime, ...] | None:
    """The next run times by Celery itself; None if it cannot compute them."""
    try:
        return tuple(islice(_run_times(schedule, app, now), MOMENTS_COMPARED))
    except Exception:  # noqa: BLE001 - foreign code: without its run times there is nothing to compare
        return None


def _run_times(schedule: Any, app: Any, moment: datetime) -> Iterator[datetime]:
    own = copy(schedule)
    own.app = app
    while True:
        own.nowfun = lambda at=moment: at
        moment = (moment + own.remaining_estimate(moment)).astimezone(UTC)
        yield moment
