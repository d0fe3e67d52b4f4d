"""The triggers of APScheduler 3, read from notes of them: in its own words, and in ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from trax.cli.importing.days import where_both_meet
from trax.cli.importing.foreign import at_a_fixed_rate
from trax.cli.importing.inert import Note, zone_in
from trax.errors import DefinitionError
from trax.records.when import Schedule
from trax.schedule.days import DAYS
from trax.schedule.every import AnySchedule, with_variance

if TYPE_CHECKING:
    from collections.abc import Callable

LAID_OUT: Final = "its moments are laid out from its start, here from when the manifest is made"
NEVER_HERE: Final = ("year", "week")
ORDER: Final = ("second", "minute", "hour", "day", "month", "day_of_week")
POSITIONS: Final = ("1st", "2nd", "3rd", "4th", "5th", "last")
LAST: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """What a trigger is in our words, and what its own class takes to make it again.

    `when` is None for what cannot be translated; the remarks say why.
    """

    written: str
    kind: str | None = None
    makings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    when: Schedule | datetime | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    remarks: tuple[str, ...] = ()


def trigger_of(note: Any) -> Trigger:
    """One of the three kinds that most jobs have; others are told by name."""
    origin = note.origin if isinstance(note, Note) else ""
    if read := READERS.get(origin):
        return read(note.state)
    name = origin.partition(":")[2] or "an unknown trigger"
    return Trigger(written=name, remarks=(f"{name} cannot be translated; start it by hand",))


def _by_distance(state: Mapping[str, Any]) -> Trigger:
    interval: timedelta = state["interval"]
    when, remarks = at_a_fixed_rate(interval)
    makings = {"seconds": interval.total_seconds(), **_kept(state, "start_date", "end_date", "jitter")}
    return Trigger(
        written=f"interval[{interval}]",
        kind="interval",
        makings={**makings, "timezone": _zone(state)},
        when=_varied(when, state),
        options={"start": "next_occurrence"},
        remarks=(LAID_OUT, *remarks, *_bounds(state)),
    )


def _by_clock(state: Mapping[str, Any]) -> Trigger:
    notes = {one.state["name"]: one.state["expressions"] for one in state["fields"]}
    theirs = {name: ",".join(_their_word(each) for each in parts) for name, parts in notes.items()}
    zone = _zone(state)
    trigger = Trigger(
        written=f"cron[{', '.join(f'{name}={text!r}' for name, text in theirs.items() if text != '*')}]",
        kind="cron",
        makings={**theirs, **_kept(state, "start_date", "end_date", "jitter"), "timezone": zone},
    )
    try:
        when, options, remarks = where_both_meet(_our_fields(theirs, notes), _zone_name(zone))
    except DefinitionError as refused:
        return replace(trigger, remarks=(f"it cannot be translated: {refused}; start it by hand",))
    return replace(
        trigger,
        when=_varied(when, state),
        options=options,
        remarks=(*remarks, *_bounds(state)),
    )


def _at_a_moment(state: Mapping[str, Any]) -> Trigger:
    moment: datetime = state["run_date"]
    return Trigger(written=f"date[{moment}]", kind="date", makings={"run_date": moment}, when=moment)


READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Trigger]]] = {
    "apscheduler.triggers.interval:IntervalTrigger": _by_distance,
    "apscheduler.triggers.cron:CronTrigger": _by_clock,
    "apscheduler.triggers.date:DateTrigger": _at_a_moment,
}


def _our_fields(theirs: Mapping[str, str], notes: Mapping[str, list[Note]]) -> list[str]:
    """The fields of cron, with seconds where they matter.

    Positions such as `2nd fri` stand with the days there, with the weekdays here.
    """
    for name in NEVER_HERE:
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


def _their_word(note: Note) -> str:
    """One part of a field as it is written there."""
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


def _our_weekdays(note: Note) -> str:
    """Their week begins on Monday, so a step or a number means other days than ours: they are named."""
    if "first" not in note.state and not note.state.get("step"):
        return "*"
    first, last = note.state.get("first", 0), note.state.get("last", len(DAYS) - 1)
    last = len(DAYS) - 1 if last is None else last
    if not note.state.get("step"):
        return "-".join(dict.fromkeys(DAYS[day][:3] for day in (first, last)))
    return ",".join(DAYS[day][:3] for day in range(first, last + 1, note.state["step"]))


def _our_position(note: Note) -> str:
    weekday = (note.state["weekday"] + 1) % len(DAYS)
    position = note.state["option_num"]
    return f"{weekday}L" if position == LAST else f"{weekday}#{position + 1}"


def _zone(state: Mapping[str, Any]) -> tzinfo:
    return zone_in(state["timezone"]) or UTC


def _zone_name(zone: tzinfo) -> str:
    """Its name; a fixed distance of whole hours from UTC has one, too, which counts westward."""
    name = getattr(zone, "key", None)
    if name is not None:
        return name
    hours, odd = divmod(zone.utcoffset(None) or timedelta(), timedelta(hours=1))
    if odd:
        raise DefinitionError(f"{zone} is no time zone with a name")
    return f"Etc/GMT{-hours:+d}" if hours else "UTC"


def _varied(schedule: AnySchedule, state: Mapping[str, Any]) -> AnySchedule:
    jitter = state.get("jitter")
    return with_variance(schedule, timedelta(seconds=ceil(jitter))) if jitter else schedule


def _kept(state: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: state[name] for name in names if state.get(name) is not None}


def _bounds(state: Mapping[str, Any]) -> tuple[str, ...]:
    end = state.get("end_date")
    return () if end is None else (f"it ends on {end}; here it goes on until it is disabled or deleted",)
