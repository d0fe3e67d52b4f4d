"""Read the job store of APScheduler 3. Its pickles are parsed without running them.

A pickle is a program: `pickle.loads` imports modules and calls what it names. Here every name becomes a stub,
and calling a stub only records the arguments. Nothing is imported, and no foreign code runs.
"""

from __future__ import annotations

import datetime as dt
import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from importlib.util import find_spec
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Self, cast

from trax.cli.importing.cron_rules import cron_for_both_days
from trax.cli.importing.foreign import MOMENTS_COMPARED, ImportedJob, interval_schedule, task_input
from trax.errors import DefinitionError, MissingExtra, import_extra
from trax.records.schedule import Schedule
from trax.schedule.cron import DAYS
from trax.schedule.every import AnySchedule, with_variance
from trax.schedule.misfire import MAX_CATCH_UP, fire_all
from trax.schedule.zones import zone_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from zoneinfo import ZoneInfo

    from trax.store.foreign_jobs import StoredJob


LATE_SECONDS: Final = 60
"""A run this late counts as missed in Trax, unless misfire_threshold is set."""

GENERAL_REMARKS: Final = (
    "APScheduler skips a run beyond max_instances; in Trax it waits",
    "APScheduler has no timeout; timeout=NO_LIMIT does the same",
    "APScheduler keeps its schedules in the job store; Trax takes them from code, so keep the printed module",
)

NOT_OPENED: Final = (
    "the job store holds pickles, and unpickling runs code: anyone who can write to the store could run "
    "anything here. The jobs were read without unpickling; --trust unpickles them"
)

NOT_INSTALLED: Final = (
    "APScheduler is not installed, so its next run times are not compared: pip install 'apscheduler<4'"
)


def general_remarks(*, trust: bool) -> tuple[str, ...]:
    """Remarks that apply to all jobs."""
    opened = () if trust else (NOT_OPENED,)
    return (*opened, *(() if find_spec("apscheduler") else (NOT_INSTALLED,)), *GENERAL_REMARKS)


def read_jobs(stored: Sequence[StoredJob], now: datetime, *, trust: bool) -> Iterator[ImportedJob]:
    for job in stored:
        try:
            yield _job(job, now, trust=trust)
        except Exception as error:  # noqa: BLE001 - its pickle, or code that it names, can raise anything
            why = str(error) if isinstance(error, DefinitionError) else f"cannot be read ({error!r})"
            yield ImportedJob(
                external_id=job.id,
                task=job.id,
                schedule_text="unread",
                remarks=(f"{why}; runs on demand only",),
            )


def _job(job: StoredJob, now: datetime, *, trust: bool) -> ImportedJob:
    state = cast("dict[str, Any]", parse_pickle(job.state))
    trigger = trigger_of(state["trigger"])
    opened = cast("dict[str, Any]", pickle.loads(job.state)) if trust else None  # noqa: S301 - allowed by --trust
    value, about_input = _input(opened or state)
    options, about_options = _options(state)
    found = ImportedJob(
        external_id=job.id,
        task=str(state["func"]).replace(":", "."),
        schedule_text=trigger.schedule_text,
        when=trigger.when,
        input=value,
        options=trigger.options,
        theirs=_moments(opened["trigger"] if opened else trigger, now),
        remarks=(*trigger.remarks, *about_input),
    )
    if trigger.when is None or isinstance(trigger.when, datetime):
        return found
    paused = {"enabled": False} if job.next_run_at is None else {}
    return replace(
        found,
        options={**options, **trigger.options, **paused},
        remarks=(*found.remarks, *about_options, *(("it is paused in APScheduler",) if paused else ())),
    )


def _input(state: Mapping[str, Any]) -> tuple[Any, tuple[str, ...]]:
    """The input; None with a remark if arguments are objects, which only unpickling can read."""
    args: Sequence[Any] = state.get("args") or ()
    kwargs: Mapping[str, Any] = state.get("kwargs") or {}
    if any(isinstance(value, PickleStub) for value in (*args, *kwargs.values())):
        return None, ("its arguments are objects; write them into the train, or use --trust",)
    return task_input(args, kwargs)


def _options(state: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Options for misfires and for max_instances."""
    grace, coalesces = state.get("misfire_grace_time"), state.get("coalesce", True)
    options: dict[str, Any] = {}
    remarks: list[str] = []
    if grace is not None:
        options["on_misfire"] = "do_nothing"
        if grace > LATE_SECONDS:
            options["misfire_threshold"] = timedelta(seconds=ceil(grace))
        elif grace < LATE_SECONDS:
            remarks.append(f"a run up to {LATE_SECONDS} s late still runs; in APScheduler up to {grace} s")
        if not coalesces:
            remarks.append(f"APScheduler ran every run missed within {grace} s; Trax runs only the last one")
    elif not coalesces:
        options["on_misfire"] = fire_all(MAX_CATCH_UP)
    if (instances := state.get("max_instances", 1)) > 1:
        options["max_instances"] = instances
    return options, tuple(remarks)


def _moments(trigger: Any, now: datetime) -> tuple[datetime, ...] | None:
    """The next run times by APScheduler itself, if it is installed; without jitter, to compare them."""
    own = _rebuild_trigger(trigger) if isinstance(trigger, ApschedulerTrigger) else trigger
    if own is None:
        return None
    if getattr(own, "jitter", None):
        own.jitter = None
    found: list[datetime] = []
    previous, after = None, now
    for _ in range(MOMENTS_COMPARED + 1):  # the first may be right now
        previous = own.get_next_fire_time(previous, after)
        if previous is None:
            break
        after = previous + timedelta(microseconds=1)
        found.append(previous.astimezone(UTC))
    return tuple(moment for moment in found if moment > now)[:MOMENTS_COMPARED]


def _rebuild_trigger(trigger: ApschedulerTrigger) -> Any:
    if trigger.kind is None:
        return None
    try:
        module = import_extra(
            f"apscheduler.triggers.{trigger.kind}", extra="apscheduler", feature="comparing run times"
        )
    except MissingExtra:
        return None
    return getattr(module, f"{trigger.kind.capitalize()}Trigger")(**trigger.constructor_arguments)


LONGEST: Final = 1 << 20

DEPTH: Final = 4
"""How deep a zone name is searched in a stub: a pickle may contain itself."""

PLAIN: Final = {"date": dt.date, "time": dt.time, "timedelta": dt.timedelta, "timezone": dt.timezone}


class PickleStub:
    """A stub for an object in a pickle: its origin, call arguments and attributes."""

    origin = ""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: dict[str, Any] = {}

    def __new__(cls, *_arguments: Any) -> Self:
        return super().__new__(cls)

    def __call__(self, *arguments: Any) -> PickleStub:
        return PickleStub(self, *arguments)

    def __setstate__(self, state: Any) -> None:
        """Attributes come as a mapping, or as two mappings for a class with slots."""
        parts = cast("tuple[Any, ...]", state if isinstance(state, tuple) else (state,))
        self.state = {}
        for part in parts:
            if isinstance(part, dict):
                self.state |= cast("dict[str, Any]", part)

    def __repr__(self) -> str:
        return self.origin or "…"


def parse_pickle(document: bytes) -> Any:
    """The plain values of a pickle, with a stub for every other object."""
    if len(document) > LONGEST:
        raise DefinitionError(f"pickle of {len(document)} bytes is too large (at most {LONGEST})")
    try:
        return _Reader(io.BytesIO(document)).load()
    except Exception as error:  # noqa: BLE001 - a broken or hostile pickle can raise anything
        raise DefinitionError(f"pickle cannot be read without running it ({error})") from None


def find_zone(value: Any) -> ZoneInfo | dt.timezone | None:
    """The time zone in a stub, of any library: the first text in it that names a zone."""
    if isinstance(value, dt.timezone):
        return value
    for text in _texts(value):
        try:
            return zone_named(text)
        except DefinitionError:
            continue
    return None


class _Reader(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if module_name == "datetime":
            return _moment if global_name == "datetime" else PLAIN.get(global_name, PickleStub)
        return type("Note", (PickleStub,), {"origin": f"{module_name}:{global_name}"})


def _moment(state: bytes, zone: Any = None) -> dt.datetime:
    """Build a datetime; a stub of a time zone becomes a real one."""
    moment: Any = dt.datetime
    return moment(state, find_zone(zone))


def _texts(value: Any, depth: int = DEPTH) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, PickleStub) and depth:
        for argument in (*value.arguments, *value.state.values()):
            yield from _texts(argument, depth - 1)


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
    constructor_values = {
        "seconds": interval.total_seconds(),
        **_present_values(state, "start_date", "end_date", "jitter"),
    }
    return ApschedulerTrigger(
        schedule_text=f"interval[{interval}]",
        kind="interval",
        constructor_arguments={**constructor_values, "timezone": _zone(state)},
        when=_with_jitter(when, state),
        options={"start": "next_occurrence"},
        remarks=(INTERVAL_REMARK, *remarks, *_bounds(state)),
    )


def _cron_trigger(state: Mapping[str, Any]) -> ApschedulerTrigger:
    notes = {each.state["name"]: each.state["expressions"] for each in state["fields"]}
    expressions = {name: ",".join(_their_expression(each) for each in parts) for name, parts in notes.items()}
    set_fields = {name: text for name, text in expressions.items() if text != "*"}
    zone = _zone(state)
    trigger = ApschedulerTrigger(
        schedule_text=f"cron[{', '.join(f'{name}={text!r}' for name, text in set_fields.items())}]",
        kind="cron",
        constructor_arguments={
            **expressions,
            **_present_values(state, "start_date", "end_date", "jitter"),
            "timezone": zone,
        },
    )
    try:
        when, options, remarks = cron_for_both_days(_our_fields(expressions, notes), _zone_name(zone))
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


def _our_fields(expressions: Mapping[str, str], notes: Mapping[str, list[PickleStub]]) -> list[str]:
    """The cron fields, with seconds if they are not 0.

    Positions such as `2nd fri` are in the day field of APScheduler, in the weekday field of Trax.
    """
    for name in UNSUPPORTED_FIELDS:
        if expressions.get(name, "*") != "*":
            raise DefinitionError(f"cron has no field for the {name} ({expressions[name]})")
    fields = {name: expressions.get(name, "*") for name in ORDER}
    fields["day_of_week"] = ",".join(_our_weekdays(each) for each in notes["day_of_week"])
    positions = [each for each in notes["day"] if "weekday" in each.state]
    if positions:
        if len(positions) < len(notes["day"]) or fields["day_of_week"] != "*":
            raise DefinitionError(f"day={expressions['day']} mixes dates and weekdays")
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
