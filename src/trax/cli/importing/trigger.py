"""Convert APScheduler 3 triggers, parsed from pickles, into schedules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from trax.cli.importing.days import cron_for_both_days
from trax.cli.importing.foreign import interval_schedule
from trax.cli.importing.inert import PickleStub, find_zone
from trax.errors import DefinitionError
from trax.records.when import Schedule
from trax.schedule.days import DAYS
from trax.schedule.every import AnySchedule, with_variance

if TYPE_CHECKING:
    from collections.abc import Callable

INTERVAL_REMARK: Final = (
    "APScheduler counts intervals from the start date, Trax from the creation of the manifest"
)
UNSUPPORTED_FIELDS: Final = ("year", "week")
ORDER: Final = ("second", "minute", "hour", "day", "month", "day_of_week")
POSITIONS: Final = ("1st", "2nd", "3rd", "4th", "5th", "last")
LAST: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ApschedulerTrigger:
    """A trigger as a schedule, with the arguments to build it again for comparison.

    `when` is None if it cannot be converted; the remarks say why.
    """

    schedule_text: str
    kind: str | None = None
    constructor_arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    when: Schedule | datetime | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    remarks: tuple[str, ...] = ()


def trigger_of(note: Any) -> ApschedulerTrigger:
    """Convert an interval, cron or date trigger; others get a remark."""
    origin = note.origin if isinstance(note, PickleStub) else ""
    if read := READERS.get(origin):
        return read(note.state)
    name = origin.partition(":")[2] or "an unknown trigger"
    return ApschedulerTrigger(
        schedule_text=name, remarks=(f"{name} cannot be converted; runs on demand only",)
    )


def _interval_trigger(state: Mapping[str, Any]) -> ApschedulerTrigger:
    interval: timedelta = state["interval"]
    when, remarks = interval_schedule(interval)
    makings = {
        "seconds": interval.total_seconds(),
        **_present_values(state, "start_date", "end_date", "jitter"),
    }
    return ApschedulerTrigger(
        schedule_text=f"interval[{interval}]",
        kind="interval",
        constructor_arguments={**makings, "timezone": _zone(state)},
        when=_with_jitter(when, state),
        options={"start": "next_occurrence"},
        remarks=(INTERVAL_REMARK, *remarks, *_bounds(state)),
    )


def _cron_trigger(state: Mapping[str, Any]) -> ApschedulerTrigger:
    notes = {each.state["name"]: each.state["expressions"] for each in state["fields"]}
    theirs = {name: ",".join(_their_expression(each) for each in parts) for name, parts in notes.items()}
    set_fields = {name: text for name, text in theirs.items() if text != "*"}
    zone = _zone(state)
    trigger = ApschedulerTrigger(
        schedule_text=f"cron[{', '.join(f'{name}={text!r}' for name, text in set_fields.items())}]",
        kind="cron",
        constructor_arguments={
            **theirs,
            **_present_values(state, "start_date", "end_date", "jitter"),
            "timezone": zone,
        },
    )
    try:
        when, options, remarks = cron_for_both_days(_our_fields(theirs, notes), _zone_name(zone))
    except DefinitionError as error:
        return replace(trigger, remarks=(f"cannot be converted: {error}; runs on demand only",))
    return replace(
        trigger,
        when=_with_jitter(when, state),
        options=options,
        remarks=(*remarks, *_bounds(state)),
    )


def _date_trigger(state: Mapping[str, Any]) -> ApschedulerTrigger:
    moment: datetime = state["run_date"]
    return ApschedulerTrigger(
        schedule_text=f"date[{moment}]", kind="date", constructor_arguments={"run_date": moment}, when=moment
    )


READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], ApschedulerTrigger]]] = {
    "apscheduler.triggers.interval:IntervalTrigger": _interval_trigger,
    "apscheduler.triggers.cron:CronTrigger": _cron_trigger,
    "apscheduler.triggers.date:DateTrigger": _date_trigger,
}


def _our_fields(theirs: Mapping[str, str], notes: Mapping[str, list[PickleStub]]) -> list[str]:
    """The cron fields, with seconds if they are not 0.

    Positions such as `2nd fri` are in the day field of APScheduler, in the weekday field of Trax.
    """
    for name in UNSUPPORTED_FIELDS:
        if theirs.get(name, "*") != "*":
            raise DefinitionError(f"cron has no field for the {name} ({theirs[name]})")
    fields = {name: theirs.get(name, "*") for name in ORDER}
    fields["day_of_week"] = ",".join(_our_weekdays(each) for each in notes["day_of_week"])
    positions = [each for each in notes["day"] if "weekday" in each.state]
    if positions:
        if len(positions) < len(notes["day"]) or fields["day_of_week"] != "*":
            raise DefinitionError(f"day={theirs['day']} mixes dates and weekdays")
        fields["day"], fields["day_of_week"] = "*", ",".join(map(_our_position, positions))
    fields["day"] = fields["day"].replace("last", "L")
    if fields["second"] == "0":
        del fields["second"]
    return list(fields.values())


def _their_expression(note: PickleStub) -> str:
    """One part of a field in APScheduler's syntax."""
    state, kind = note.state, note.origin.partition(":")[2]
    if kind == "LastDayOfMonthExpression":
        return "last"
    if "weekday" in state:
        return f"{POSITIONS[state['option_num']]} {DAYS[state['weekday']][:3]}"
    step = f"/{state['step']}" if state.get("step") else ""
    if "first" not in state:
        return f"*{step}"
    ends: list[int] = [end for end in (state["first"], state["last"]) if end is not None]
    words = [DAYS[end][:3] if kind == "WeekdayRangeExpression" else str(end) for end in ends]
    return "-".join(dict.fromkeys(words)) + step


def _our_weekdays(note: PickleStub) -> str:
    """Weekdays by name: APScheduler's week begins on Monday, so its numbers differ from cron's."""
    if "first" not in note.state and not note.state.get("step"):
        return "*"
    first, last = note.state.get("first", 0), note.state.get("last", len(DAYS) - 1)
    last = len(DAYS) - 1 if last is None else last
    if not note.state.get("step"):
        return "-".join(dict.fromkeys(DAYS[day][:3] for day in (first, last)))
    return ",".join(DAYS[day][:3] for day in range(first, last + 1, note.state["step"]))


def _our_position(note: PickleStub) -> str:
    weekday = (note.state["weekday"] + 1) % len(DAYS)
    position = note.state["option_num"]
    return f"{weekday}L" if position == LAST else f"{weekday}#{position + 1}"


def _zone(state: Mapping[str, Any]) -> tzinfo:
    return find_zone(state["timezone"]) or UTC


def _zone_name(zone: tzinfo) -> str:
    """The zone name; a fixed offset of whole hours is Etc/GMT with the sign reversed."""
    name = getattr(zone, "key", None)
    if name is not None:
        return name
    hours, rest = divmod(zone.utcoffset(None) or timedelta(), timedelta(hours=1))
    if rest:
        raise DefinitionError(f"time zone {zone} has no name")
    return f"Etc/GMT{-hours:+d}" if hours else "UTC"


def _with_jitter(schedule: AnySchedule, state: Mapping[str, Any]) -> AnySchedule:
    jitter = state.get("jitter")
    return with_variance(schedule, timedelta(seconds=ceil(jitter))) if jitter else schedule


def _present_values(state: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: state[name] for name in names if state.get(name) is not None}


def _bounds(state: Mapping[str, Any]) -> tuple[str, ...]:
    end = state.get("end_date")
    return () if end is None else (f"it ends on {end}; in Trax it continues until it is disabled or deleted",)
