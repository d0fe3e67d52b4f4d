"""The beat schedule of a Celery app. Its own library reckons its moments."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Any, Final, cast

from trax.cli.importing import cron_rules
from trax.cli.importing.comparing import COMPARED
from trax.cli.importing.days import where_both_meet
from trax.cli.importing.foreign import NO_LIMIT, Foreign, arguments, at_a_fixed_rate
from trax.errors import DefinitionError, shown
from trax.host.extras import needed

if TYPE_CHECKING:
    from collections.abc import Iterator

IN_GENERAL: Final = (
    "beat sends the next task while the last one is still under way; here it waits for it",
    "beat counts intervals from when it last sent the task, and this from when the manifest is made",
    "a task without a time_limit may take as long as it likes; here timeout=NO_LIMIT says so",
    "how often a task was retried stands in its own code; here it is an option: max_retries",
)
LIMITS: Final = ("time_limit", "soft_time_limit")
"""How long a task may take before it is ended, or told to end; the first that was said counts."""
FIELDS: Final = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")


def read_beat(source: Any, now: datetime) -> Iterator[Foreign]:
    """Every entry of a Celery app's `beat_schedule`, or of a mapping that is one."""
    celery = needed("celery", extra="celery", by="reading a beat schedule")
    if isinstance(source, Mapping):
        app, entries = celery.Celery(set_as_current=False), cast("Mapping[str, Any]", source)
    elif isinstance(source, celery.Celery):
        app = source
        app.finalize()  # tasks may add themselves to the schedule when this is done
        entries = app.conf.beat_schedule
    else:
        raise DefinitionError(f"{shown(source)} is neither a Celery app nor a beat_schedule")
    for name, entry in entries.items():
        try:
            yield _entry(name, entry, app, now)
        except Exception as odd:  # noqa: BLE001 - whatever it holds, and whatever Celery makes of that
            why = f"it has an odd shape ({odd!r}); start it by hand"
            yield Foreign(external_id=str(name), task=str(name), written="unread", remarks=(why,))


def _entry(name: str, entry: Mapping[str, Any], app: Any, now: datetime) -> Foreign:
    schedules = needed("celery.schedules", extra="celery", by="reading a beat schedule")
    said = schedules.maybe_schedule(entry["schedule"], entry.get("relative", False), app=app)
    value, about_input = arguments(entry.get("args") or (), entry.get("kwargs") or {})
    found = Foreign(
        external_id=name,
        task=entry["task"],
        written=repr(said).strip("<>").removesuffix(" (m/h/dM/MY/d)"),
        input=value,
        theirs=_moments(said, app, now),
    )
    found = _timed(found, said, app, schedules)
    options, about_options = _options(entry.get("options") or {})
    return replace(
        found,
        options={**found.options, **options},
        timeout=_timeout(entry, app),
        remarks=(*found.remarks, *about_input, *about_options),
    )


def _timed(found: Foreign, said: Any, app: Any, schedules: Any) -> Foreign:
    """Only its own three kinds are understood: a class made from one of them may mean anything."""
    if type(said) is schedules.crontab:
        return _by_clock(found, said, app)
    if type(said) is schedules.schedule:
        return _by_distance(found, said.run_every, relative=said.relative)
    kind = type(said).__name__
    why = (
        "sunrise and sunset are not times of the clock"
        if isinstance(said, schedules.solar)
        else "only its own code knows when"
    )
    return replace(
        found, remarks=(f"a schedule of type {kind} cannot be translated: {why}; start it by hand",)
    )


def _by_clock(found: Foreign, said: Any, app: Any) -> Foreign:
    fields = [
        _field(field, getattr(said, name), getattr(said, f"_orig_{name}"))
        for field, name in zip(cron_rules.FIELDS, FIELDS, strict=True)
    ]
    zone = str(app.timezone)
    try:
        when, options, remarks = where_both_meet(fields, zone)
    except DefinitionError as refused:
        return replace(found, remarks=(f"it cannot be translated: {refused}",))
    deadline = app.conf.beat_cron_starting_deadline
    if deadline is not None and not options:
        options |= {"on_misfire": "do_nothing", "misfire_threshold": timedelta(seconds=ceil(deadline))}
    return replace(found, when=when, options=options, remarks=remarks)


def _by_distance(found: Foreign, run_every: timedelta, *, relative: bool) -> Foreign:
    when, remarks = at_a_fixed_rate(run_every)
    if relative:
        remarks += ("relative=True rounds its moments to the clock; cron(…) says such moments here",)
    return replace(found, when=when, options={"start": "next_occurrence"}, remarks=remarks)


def _timeout(entry: Mapping[str, Any], app: Any) -> timedelta:
    """What the entry says, else its task, where that is imported, else the app; else there is no limit."""
    message: Mapping[str, Any] = entry.get("options") or {}
    task = app.tasks.get(entry["task"])
    for name in LIMITS:
        seconds = message.get(name) or getattr(task, name, None) or getattr(app.conf, f"task_{name}")
        if seconds:
            return timedelta(seconds=ceil(seconds))
    return NO_LIMIT


def _options(said: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What was said of the message: a queue becomes a group, the rest is for a person to decide."""
    left = {name: value for name, value in said.items() if name not in {"queue", *LIMITS}}
    remarks = [f"its option {name}={value!r} has no counterpart here" for name, value in left.items()]
    if "expires" in left:
        remarks.append("expires drops a task that nobody began in time; here it waits until it can run")
    queue = said.get("queue")
    if queue is None:
        return {}, tuple(remarks)
    name = str(getattr(queue, "name", queue))
    return {"group": name}, (f"queue {name!r} became a group: give it limits with app.group(…)", *remarks)


def _field(field: cron_rules.Field, numbers: set[int], written: Any) -> str:
    """As it was written, where that is text that means the same here; else the numbers it stands for."""
    text = cron_rules.short(written) if isinstance(written, str) else ""
    if "*" in text or set(cron_rules.numbers_if_any(field, text)) == numbers:
        return text
    return ",".join(map(str, sorted(numbers)))


def _moments(said: Any, app: Any, now: datetime) -> tuple[datetime, ...] | None:
    """What Celery says when it is asked at each of its moments; None when it cannot say."""
    try:
        return tuple(islice(_asked(said, app, now), COMPARED))
    except Exception:  # noqa: BLE001 - code of others: whatever it is, there is nothing to compare with
        return None


def _asked(said: Any, app: Any, moment: datetime) -> Iterator[datetime]:
    asked = copy(said)
    asked.app = app
    while True:
        asked.nowfun = lambda at=moment: at
        moment = (moment + asked.remaining_estimate(moment)).astimezone(UTC)
        yield moment
