"""The scheduling rules once more, as slowly and plainly as possible.

Nothing is remembered but what happened. Every question is answered by going through that history again, so
there is no `next_due_at` here that could be wrong: what the engine does is held against these answers.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

START: Final = datetime(2027, 3, 1, 11, 30, tzinfo=UTC)
MINUTE: Final = timedelta(minutes=1)
TICK: Final = timedelta(microseconds=1)
THRESHOLD: Final = timedelta(seconds=60)
BOOST: Final = 16
RETRY_MINUTES: Final = (5, 10, 20, 40, 60)
DAYS: Final = 150

CLOCKS: Final[dict[str, Sequence[tuple[int, int]]]] = {
    "*/15 * * * *": [(hour, minute) for hour in range(24) for minute in range(0, 60, 15)],
    "0 */6 * * *": [(hour, 0) for hour in range(0, 24, 6)],
    "30 3 * * *": [(3, 30)],
}
EXCLUDED: Final[dict[str, Callable[[datetime], bool]]] = {
    "noon": lambda moment: moment.hour == 12,
    "night": lambda moment: moment.hour >= 22 or moment.hour < 6,
    "tuesday": lambda moment: moment.weekday() == 1,
}

Kind = Literal["interval", "anchored", "cron", "once", "dependent"]
Misfire = Literal["fire_once_now", "do_nothing", "fire_all"]
What = Literal[
    "planned",
    "counted",
    "queued",
    "success",
    "failure",
    "given_up",
    "cancelled",
    "dead",
    "acknowledged",
    "requeued",
]
MADE_UP: Final = 3


def moments_of(expression: str) -> list[datetime]:
    """Every moment of a cron expression that a test could come near."""
    midnights = [START.replace(hour=0, minute=0) + timedelta(days=n) for n in range(-1, DAYS)]
    return [day.replace(hour=hour, minute=minute) for day in midnights for hour, minute in CLOCKS[expression]]


MOMENTS: Final = {expression: moments_of(expression) for expression in CLOCKS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What code says about a manifest."""

    kind: Kind
    minutes: int = 5
    cron: str = "*/15 * * * *"
    parent: str | None = None
    exclusions: tuple[str, ...] = ()
    max_retries: int = 3
    max_instances: int = 1
    misfire: Misfire = "fire_once_now"
    starts_later: bool = False
    starts_now: bool = False
    enabled: bool | None = None

    @property
    def is_regular(self) -> bool:
        return self.kind in {"interval", "anchored", "cron"}

    @property
    def schedule(self) -> tuple[object, ...]:
        """What may not change if a moment set beforehand is to stay."""
        match self.kind:
            case "cron":
                return (self.kind, self.cron)
            case "interval" | "anchored":
                return (self.kind, self.minutes)
            case _:
                return (self.kind,)

    @property
    def counts_occurrences(self) -> bool:
        return self.max_instances > 1 or self.misfire == "fire_all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a manifest, and what code said about it then."""

    what: What
    at: datetime
    plan: Plan
    origin: str = ""
    occurrence: datetime | None = None
    moment: datetime | None = None
    attempt: int = 1


@dataclass(slots=True, kw_only=True)
class Entry:
    """A wish in the queue."""

    job: str
    origin: str
    priority: int
    created_at: datetime
    scheduled_at: datetime | None = None
    attempt: int = 1


@dataclass(slots=True, kw_only=True)
class Run:
    """A run that has begun and not ended. It is lost when whoever holds it has stopped beating."""

    job: str
    origin: str
    attempt: int
    is_lost: bool = False


@dataclass(slots=True, kw_only=True)
class Job:
    """A manifest and all that ever happened to it."""

    name: str
    plan: Plan
    made_at: datetime
    enabled: bool
    once_at: datetime | None
    parent: str | None
    most_instances: int
    is_declared: bool
    declared_enabled: bool | None = None
    """What code said of `enabled` at the last start."""
    events: list[Event] = field(default_factory=list[Event])

    def note(self, what: What, now: datetime, **more: object) -> None:
        self.events.append(replace(Event(what=what, at=now, plan=self.plan), **more))

    @property
    def failures(self) -> int:
        """How many in a row: a success or a person's word begins the row anew."""
        return _failures(self._since_the_row_began())

    @property
    def has_failed_for_good(self) -> bool:
        has_given_up = any(event.what == "given_up" for event in self._since_the_row_began())
        return has_given_up or self.failures >= max(1, self.plan.max_retries)

    @property
    def is_to_be_tried_again(self) -> bool:
        """Whether it failed, and the retry of that was not cancelled."""
        row = self._since_the_row_began()
        for number, event in reversed(list(enumerate(row))):
            if event.what in {"failure", "given_up"}:
                return True
            if event.what == "cancelled" and event.attempt > _failures(row[:number]):
                return False
        return False

    def _since_the_row_began(self) -> list[Event]:
        ends = ("success", "acknowledged", "requeued")
        last = max((number for number, event in enumerate(self.events) if event.what in ends), default=-1)
        return self.events[last + 1 :]

    @property
    def last_success(self) -> datetime | None:
        return next((event.at for event in reversed(self.events) if event.what == "success"), None)

    @property
    def is_dead(self) -> bool:
        letters = [event.what for event in self.events if event.what in {"dead", "acknowledged", "requeued"}]
        return bool(letters) and letters[-1] == "dead"

    @property
    def last_occurrence(self) -> datetime | None:
        """The one it was queued for last, or the moment from which a new schedule counts."""
        whats = ("queued", "counted")
        return next((event.occurrence for event in reversed(self.events) if event.what in whats), None)

    @property
    def consumed(self) -> datetime | None:
        """The parent's success that it last ran for."""
        for event in reversed(self.events):
            if event.what == "queued" and event.origin == "schedule" and event.plan.kind == "dependent":
                return event.occurrence
        return None

    @property
    def planned(self) -> datetime | None:
        """The moment before which it must not be started: how it was declared, or how its last run ended."""
        for event in reversed(self.events):
            match event.what:
                case "success" | "failure" | "given_up":
                    return None
                case "planned":
                    return event.moment
                case "cancelled" if event.plan.max_instances == 1:
                    return event.moment
                case _:
                    pass
        return None

    def is_excluded(self, now: datetime) -> bool:
        return any(EXCLUDED[name](now) for name in self.plan.exclusions)

    def next_after(self, moment: datetime, anchor: datetime) -> datetime:
        """The first regular moment after this one."""
        if self.plan.kind == "cron":
            moments = MOMENTS[self.plan.cron]
            return moments[bisect_right(moments, moment)]
        step = timedelta(minutes=self.plan.minutes)
        start = self.made_at if self.plan.kind == "anchored" else anchor
        return start + ((moment - start) // step + 1) * step

    def regular_moments(self, after: datetime, until: datetime, anchor: datetime) -> Iterator[datetime]:
        while (after := self.next_after(after, anchor)) <= until:
            yield after

    def occurrence(self, now: datetime) -> datetime | None:
        """The regular occurrence it is to run for in this moment, if any."""
        planned, since = self.planned, self.last_success
        if self.plan.counts_occurrences and self.last_occurrence is not None:
            since = self.last_occurrence
            planned = None if planned is not None and planned <= since else planned
        if since is None and planned is None:
            return now
        anchor = since or planned or now
        since = since or anchor - TICK
        due = planned or self.next_after(since, anchor)
        if due > now:
            return None
        missed = list(self.regular_moments(since, now, anchor))
        match self.plan.misfire:
            case "fire_all":
                missed = [moment for moment in missed if not self.is_excluded(moment)]
                return missed[-MADE_UP:][0] if missed else None
            case "fire_once_now":
                return max([due, *missed])
            case "do_nothing":
                latest = max([due, *missed])
                return latest if now - latest <= THRESHOLD else None


@dataclass(slots=True)
class Model:
    """All manifests, the queue and the runs, as they ought to be."""

    now: datetime = START
    jobs: dict[str, Job] = field(default_factory=dict[str, Job])
    groups: dict[str, bool] = field(default_factory=dict[str, bool])
    opened: set[str] = field(default_factory=set[str])
    """The groups of which code said at the last start that they are enabled."""
    entries: list[Entry] = field(default_factory=list[Entry])
    runs: dict[int, Run] = field(default_factory=dict[int, Run])

    # what is declared

    def declare(self, name: str, plan: Plan, *, anew: bool) -> None:
        """Write a manifest. `anew`: at run time, when what is to run once gets a new moment."""
        self.groups.setdefault(group_of(name), True)
        job = self.jobs.get(name)
        if job is None:
            enabled = plan.enabled is not False
            job = Job(
                name=name,
                plan=plan,
                made_at=self.now,
                enabled=enabled,
                once_at=None,
                parent=plan.parent,
                most_instances=plan.max_instances,
                is_declared=not anew,
                declared_enabled=None if anew else plan.enabled,
            )
            self.jobs[name] = job
            self._set_moments(job, plan, was=None, anew=True)
            return
        was, was_once_at = job.plan, job.once_at
        job.plan, job.parent = plan, plan.parent
        job.is_declared = job.is_declared or not anew
        job.most_instances = max(job.most_instances, plan.max_instances)
        is_asked_for_once_more = anew and was.kind == plan.kind == "once" and job.last_success is None
        if is_asked_for_once_more and was_once_at is not None and was_once_at <= self.now:
            job.enabled = True
        job.enabled = self._enabled(job, was, anew=anew)
        self._set_moments(job, plan, was=was, anew=anew)

    def _enabled(self, job: Job, was: Plan, *, anew: bool) -> bool:
        """What code says, if it says something else than at the last start; else what an operator said."""
        said, said_before = job.plan.enabled, job.declared_enabled
        if not anew:
            job.declared_enabled = said
        if was.kind == "once" and job.last_success is not None and job.plan.kind != "once":
            return said is not False
        return job.enabled if said is None or (said == said_before and not anew) else said

    def _set_moments(self, job: Job, plan: Plan, *, was: Plan | None, anew: bool) -> None:
        is_once = plan.kind == "once"
        has_new_moment = is_once and (anew or job.once_at is None)
        once_at = self.now + plan.minutes * MINUTE if has_new_moment else job.once_at
        moved = is_once and once_at != job.once_at
        job.once_at = once_at if is_once else None
        if was is not None and was.schedule == plan.schedule and not moved:
            return
        starts_later = plan.starts_later or (plan.kind == "cron" and not plan.starts_now)
        waits = starts_later and job.last_success is None
        if was is not None and plan.kind == "cron" and (job.last_success or job.last_occurrence):
            waits = not job.is_to_be_tried_again  # an edit starts nothing
            if waits and plan.misfire == "fire_all":
                job.note("counted", self.now, occurrence=self.now)
        moment = job.next_after(self.now, self.now) if waits and plan.is_regular else None
        job.note("planned", self.now, moment=moment)

    def delete(self, name: str) -> None:
        del self.jobs[name]
        self.entries = [entry for entry in self.entries if entry.job != name]
        self.runs = {number: run for number, run in self.runs.items() if run.job != name}
        for job in self.jobs.values():
            job.parent = None if job.parent == name else job.parent

    # what a cycle does

    def reap(self) -> None:
        """Lost runs fail, in every cycle and when a server starts."""
        for number in [number for number, run in self.runs.items() if run.is_lost]:
            self.end(number, "failure")

    def given_up(self) -> list[str]:
        """Whose dead letter is to be written."""
        return [
            job.name
            for job in self.jobs.values()
            if job.enabled and not job.is_dead and job.has_failed_for_good
        ]

    def wanted(self) -> dict[str, Entry]:
        """The entries to write in this moment."""
        found = {name: self.entry_for(job, self.now) for name, job in self.jobs.items()}
        return {name: entry for name, entry in found.items() if entry is not None}

    def entry_for(self, job: Job, now: datetime) -> Entry | None:
        """The entry that is due, if nothing stands against it."""
        if self.is_held_back(job) or job.has_failed_for_good:
            return None
        if job.is_to_be_tried_again and not self._is_being_retried(job):
            return self._retry(job, now)
        occurrence = self._occurrence(job, now)
        return None if occurrence is None else self._entry(job, "schedule", now)

    def is_held_back(self, job: Job) -> bool:
        """Whether something must happen first, whatever the time."""
        is_queued = any(
            entry.job == job.name and entry.origin in {"schedule", "retry", "requeue"}
            for entry in self.entries
        )
        active = [run for run in self.runs.values() if run.job == job.name]
        return (
            not job.enabled
            or not self.groups[group_of(job.name)]
            or job.is_dead
            or is_queued
            or len(active) >= job.plan.max_instances
            or (job.plan.kind == "dependent" and not self._parent_is_open(job))
        )

    def queue(self, entry: Entry) -> None:
        job = self.jobs[entry.job]
        occurrence = job.last_occurrence if entry.origin == "retry" else self._occurrence(job, self.now)
        job.note("queued", self.now, origin=entry.origin, occurrence=occurrence)
        self.entries.append(entry)

    def _is_being_retried(self, job: Job) -> bool:
        return any(run.job == job.name and run.attempt > job.failures for run in self.runs.values())

    def _retry(self, job: Job, now: datetime) -> Entry | None:
        if job.plan.kind != "dependent" and job.is_excluded(now):
            return None
        if job.planned is not None and job.planned > now:
            return None
        start = now + RETRY_MINUTES[min(job.failures, len(RETRY_MINUTES)) - 1] * MINUTE
        while job.plan.kind != "dependent" and job.is_excluded(start):
            start = (start + MINUTE).replace(second=0, microsecond=0)
        return replace(self._entry(job, "retry", now), scheduled_at=start, attempt=job.failures + 1)

    def _entry(self, job: Job, origin: str, now: datetime) -> Entry:
        priority = BOOST if job.plan.kind == "dependent" else 0
        return Entry(job=job.name, origin=origin, priority=priority, created_at=now)

    def _occurrence(self, job: Job, now: datetime) -> datetime | None:
        if job.plan.kind == "dependent":
            success = self.jobs[job.parent].last_success if job.parent else None
            is_new = success is not None and (job.consumed is None or success > job.consumed)
            return success if is_new else None
        if job.is_excluded(now):
            return None
        if job.plan.kind == "once":
            is_due = job.once_at is not None and job.once_at <= now and job.last_success is None
            return job.once_at if is_due else None
        return job.occurrence(now)

    def _parent_is_open(self, job: Job) -> bool:
        parent = self.jobs.get(job.parent or "")
        if parent is None:
            return False
        return parent.enabled or (parent.plan.kind == "once" and parent.last_success is not None)

    # what runs and people do

    def held(self) -> list[int]:
        """The runs that a live worker holds."""
        return [number for number, run in self.runs.items() if not run.is_lost]

    def dead(self) -> list[str]:
        return sorted(name for name, job in self.jobs.items() if job.is_dead)

    def runnable(self) -> list[Entry]:
        return [
            entry
            for entry in self.entries
            if self.groups[group_of(entry.job)]
            and (entry.scheduled_at is None or entry.scheduled_at <= self.now)
        ]

    def begin(self, number: int, entry: Entry) -> None:
        self.entries = [other for other in self.entries if other is not entry]
        self.runs[number] = Run(job=entry.job, origin=entry.origin, attempt=entry.attempt)

    def end(self, number: int, how: What) -> None:
        run = self.runs.pop(number)
        job = self.jobs[run.job]
        moment = job.next_after(self.now, self.now) if job.plan.is_regular else job.once_at
        moment = moment if how == "cancelled" else None
        job.note(how, self.now, moment=moment, attempt=run.attempt)
        if job.plan.kind == "once":
            is_ahead = job.last_success is None and job.once_at is not None and job.once_at > self.now
            is_over = how == "success" or (how == "cancelled" and not is_ahead)
            job.enabled = job.enabled and not is_over

    def trigger(self, name: str, delay: timedelta | None) -> bool:
        """An extra entry, unless one is there that could be dispatched. Whether it was written."""
        if delay is None and self._could_start(name):
            return False
        scheduled_at = None if delay is None else self.now + delay
        self.entries.append(
            Entry(job=name, origin="trigger", priority=0, created_at=self.now, scheduled_at=scheduled_at)
        )
        return True

    def acknowledge(self, name: str) -> None:
        """The schedule goes on; what was to run once has none left, unless its moment is still to come."""
        job = self.jobs[name]
        job.note("acknowledged", self.now)
        if job.plan.kind == "once" and job.once_at is not None and job.once_at <= self.now:
            job.enabled = False

    def requeue(self, name: str) -> None:
        self.jobs[name].note("requeued", self.now)
        if not self._could_start(name):
            self.entries.append(Entry(job=name, origin="requeue", priority=0, created_at=self.now))

    def _could_start(self, name: str) -> bool:
        """Whether an entry of it waits for no moment."""
        return any(
            entry.job == name and (entry.scheduled_at is None or entry.scheduled_at <= self.now)
            for entry in self.entries
        )


def _failures(events: Sequence[Event]) -> int:
    return sum(event.what in {"failure", "given_up"} for event in events)


def group_of(name: str) -> str:
    """Names begin with the group: `a1` is in group `a`."""
    return name[0]
