"""The jobs of an APScheduler 3 job store in a database.

They are pickles, and to unpickle is to run what somebody else has written. So they are read as inert notes,
which is enough for most; unpickled they are only for who says that the store can be trusted.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from math import ceil
from typing import TYPE_CHECKING, Any, Final, cast

from trax.cli.importing.comparing import COMPARED
from trax.cli.importing.foreign import Foreign, arguments
from trax.cli.importing.inert import Note, read_inert
from trax.cli.importing.trigger import Trigger, trigger_of
from trax.errors import DefinitionError, MissingExtra
from trax.host.extras import needed
from trax.schedule.misfire import MOST_MADE_UP, fire_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trax.store.foreign_jobs import StoredJob

LATE_SECONDS: Final = 60
"""What counts as missed here, unless a threshold says otherwise."""
IN_GENERAL: Final = (
    "APScheduler skips a run that would be one too many at once; here it waits for its turn",
    "APScheduler ends no run, however long it takes; here timeout=NO_LIMIT says so",
    "its job store is the truth for its schedules; here the code is, so keep the module that is printed",
)
NOT_OPENED: Final = (
    "the job store holds pickles, and a pickle runs code when it is opened: whoever can write to the store "
    "could run anything here. They were read without opening them; with --trust they are opened"
)
NOT_INSTALLED: Final = (
    "APScheduler is not installed here, so its own next moments are not known: pip install 'apscheduler<4'"
)


def in_general(*, trust: bool) -> tuple[str, ...]:
    """What is to be said of all jobs."""
    opened = () if trust else (NOT_OPENED,)
    return (*opened, *(() if find_spec("apscheduler") else (NOT_INSTALLED,)), *IN_GENERAL)


def read_jobs(stored: Sequence[StoredJob], now: datetime, *, trust: bool) -> Iterator[Foreign]:
    for job in stored:
        try:
            yield _job(job, now, trust=trust)
        except Exception as odd:  # noqa: BLE001 - whatever its pickle, or code that it names, leads to
            why = str(odd) if isinstance(odd, DefinitionError) else f"it has an odd shape ({odd!r})"
            yield Foreign(
                external_id=job.id, task=job.id, written="unread", remarks=(f"{why}; start it by hand",)
            )


def _job(job: StoredJob, now: datetime, *, trust: bool) -> Foreign:
    state = cast("dict[str, Any]", read_inert(job.state))
    trigger = trigger_of(state["trigger"])
    opened = cast("dict[str, Any]", pickle.loads(job.state)) if trust else None  # noqa: S301 - they said so
    value, about_input = _input(opened or state)
    options, about_options = _options(state)
    found = Foreign(
        external_id=job.id,
        task=str(state["func"]).replace(":", "."),
        written=trigger.written,
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
        remarks=(*found.remarks, *about_options, *(("it is paused there",) if paused else ())),
    )


def _input(state: Mapping[str, Any]) -> tuple[Any, tuple[str, ...]]:
    """Arguments that are objects cannot be read from a pickle that stays closed."""
    args: Sequence[Any] = state.get("args") or ()
    kwargs: Mapping[str, Any] = state.get("kwargs") or {}
    if any(isinstance(one, Note) for one in (*args, *kwargs.values())):
        return None, ("its arguments are objects; write them into the train, or read them with --trust",)
    return arguments(args, kwargs)


def _options(state: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """How late is too late, whether missed runs are put together, and how many may be under way."""
    grace, coalesces = state.get("misfire_grace_time"), state.get("coalesce", True)
    options: dict[str, Any] = {}
    remarks: list[str] = []
    if grace is not None:
        options["on_misfire"] = "do_nothing"
        if grace > LATE_SECONDS:
            options["misfire_threshold"] = timedelta(seconds=ceil(grace))
        elif grace < LATE_SECONDS:
            remarks.append(f"a run that is up to {LATE_SECONDS} s late is run; there it was {grace} s")
        if not coalesces:
            remarks.append(f"of the runs missed within {grace} s each was made up; here the last of them is")
    elif not coalesces:
        options["on_misfire"] = fire_all(MOST_MADE_UP)
    if (instances := state.get("max_instances", 1)) > 1:
        options["max_instances"] = instances
    return options, tuple(remarks)


def _moments(trigger: Any, now: datetime) -> tuple[datetime, ...] | None:
    """What its own classes say, if they are installed; without jitter, which nobody can compare."""
    made = _made_again(trigger) if isinstance(trigger, Trigger) else trigger
    if made is None:
        return None
    if getattr(made, "jitter", None):
        made.jitter = None
    found: list[datetime] = []
    previous, asked_at = None, now
    for _ in range(COMPARED + 1):  # the first may be right now
        previous = made.get_next_fire_time(previous, asked_at)
        if previous is None:
            break
        asked_at = previous + timedelta(microseconds=1)
        found.append(previous.astimezone(UTC))
    return tuple(moment for moment in found if moment > now)[:COMPARED]


def _made_again(trigger: Trigger) -> Any:
    if trigger.kind is None:
        return None
    try:
        home = needed(f"apscheduler.triggers.{trigger.kind}", extra="apscheduler", by="comparing its moments")
    except MissingExtra:
        return None
    return getattr(home, f"{trigger.kind.capitalize()}Trigger")(**trigger.makings)
