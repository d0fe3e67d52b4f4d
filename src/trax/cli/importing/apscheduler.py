"""Read the jobs of an APScheduler 3 job store in a database.

Jobs are pickles, and unpickling runs code. So they are parsed without running anything, which is enough for
most jobs; they are unpickled only with `--trust`.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from math import ceil
from typing import TYPE_CHECKING, Any, Final, cast

from trax.cli.importing.comparing import MOMENTS_COMPARED
from trax.cli.importing.foreign import ImportedJob, task_input
from trax.cli.importing.inert import PickleStub, parse_pickle
from trax.cli.importing.trigger import ApschedulerTrigger, trigger_of
from trax.errors import DefinitionError, MissingExtra
from trax.host.extras import import_extra
from trax.schedule.misfire import MAX_CATCH_UP, fire_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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
