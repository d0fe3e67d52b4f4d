"""The engine and the model side by side: everything is done to both, and then they must agree."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from tests.support.model import MINUTE, Model, What
from tests.support.stepwise import End

from trax.records.result import ResultKind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from tests.support.model import Job, Plan
    from tests.support.stepwise import Engine, Seen

    from trax.engine.manifest_manager import ManagerResult

NAMES: Final = ("a1", "a2", "b1", "b2")
"""Who depends on somebody depends on one of those before it, so that nothing goes in a circle."""

ALL: Final = -1
BY_SCHEDULE: Final = ("schedule", "retry")
ENDS: Final[Mapping[What, ResultKind]] = {
    "success": ResultKind.SUCCESS,
    "failure": ResultKind.FAILURE,
    "given_up": ResultKind.FAILURE,
    "cancelled": ResultKind.CANCELLED,
}
LATER: Final = (
    *(n * MINUTE for n in range(1, 21)),
    *(timedelta(hours=n) for n in range(1, 30)),
    *(timedelta(days=n) for n in range(2, 9)),
)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What goes on by itself: time, the manager, runs that begin and runs that end."""

    minutes: int = 0
    cycles: int = ALL
    starts: int = 0
    hows: tuple[What, ...] = ()
    in_one_batch: bool = False


class EngineAndModel:
    """Does something to the engine and to the model, and looks whether they still agree."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.model = Model()
        self.code: dict[str, Plan] = {}
        engine.clear()

    def declare(self, name: str, plan: Plan) -> None:
        """Declare at run time."""
        self.engine.schedule(name, plan)
        self.model.declare(name, plan, anew=True)
        self.check()

    def deploy(self, plans: Mapping[str, Plan], opened: Collection[str] = ()) -> None:
        """Start a server again, with these declarations added to its code; of a group it may say: enabled."""
        self.code |= plans
        code = {name: self.code[name] for name in NAMES if name in self.code}
        gone = [name for name, job in self.model.jobs.items() if job.is_declared and name not in code]
        self.engine.restart(code, sorted(opened))
        self.engine.forget_retired()
        self.model.reap()
        for name in gone:
            self.model.delete(name)
        self.model.groups |= dict.fromkeys(set(opened) - self.model.opened, True)
        self.model.opened = set(opened)
        for name, plan in code.items():
            self.model.declare(name, plan, anew=False)
        self.check()

    def deploy_without(self, name: str) -> None:
        """Start a server whose code has lost a manifest and whoever depends on it."""
        gone = {name}
        for other in NAMES:
            if other in self.code and self.code[other].parent in gone:
                gone.add(other)
        self.code = {name: plan for name, plan in self.code.items() if name not in gone}
        self.deploy({})

    def delete(self, name: str) -> None:
        self.engine.do(self.engine.app.manifests.delete(name))
        self.engine.forget_retired()
        self.model.delete(name)
        self.check()

    def switch(self, name: str, *, enabled: bool) -> None:
        manifests = self.engine.app.manifests
        self.engine.do(manifests.enable(name) if enabled else manifests.disable(name))
        self.model.jobs[name].enabled = enabled
        self.check()

    def switch_group(self, name: str, *, enabled: bool) -> None:
        self.engine.do(self.engine.app.groups.update(name, enabled=enabled))
        self.model.groups[name] = enabled
        self.check()

    def trigger(self, name: str, minutes: int | None = None) -> None:
        delay = None if minutes is None else minutes * MINUTE
        self.engine.do(self.engine.app.manifests.trigger(name, delay=delay))
        self.model.trigger(name, delay)
        self.check()

    def acknowledge(self, name: str) -> None:
        letter = self.engine.seen().letters[name]
        assert self.engine.do(self.engine.app.dead_letters.acknowledge([letter], "seen")) == 1
        self.model.acknowledge(name)
        self.check()

    def requeue(self, name: str) -> None:
        letter = self.engine.seen().letters[name]
        assert self.engine.do(self.engine.app.dead_letters.requeue([letter])) == 1
        self.model.requeue(name)
        self.check()

    def lose(self, number: int) -> None:
        """The worker of a run stops beating."""
        self.engine.lose(number)
        self.model.runs[number].is_lost = True
        self.check()

    def go_on(self, turn: Turn) -> None:
        """Let time pass, then the manager have its cycles, then runs begin, then runs end."""
        self.engine.now += turn.minutes * MINUTE
        self.model.now = self.engine.now
        seen = self.engine.seen()
        if turn.cycles == ALL:
            seen = self._settle(seen)
        elif turn.cycles:
            _, seen = self._cycle(seen)
        self.check(seen)
        for _ in range(turn.starts):
            self._start_next()
        ends = dict(zip(self.model.held(), turn.hows, strict=False))
        if ends:
            self._finish(ends, in_one_batch=turn.in_one_batch)
        if turn.starts or ends:
            self.check()

    def go_to_the_next_look(self) -> None:
        looks = [row.next_due_at for row in self.engine.seen().manifests.values()]
        later = [look for look in looks if look is not None and look > self.engine.now]
        if later:
            self.engine.now = self.model.now = min(later)

    def _settle(self, seen: Seen) -> Seen:
        """Cycles until nothing changes: now everything is queued that is due."""
        while True:
            managed, seen = self._cycle(seen)
            if not (managed.has_changes or managed.run_again):
                break
        assert self.model.given_up() == []
        overlapping = {name for name, job in self.model.jobs.items() if job.plan.max_instances > 1}
        assert self.model.wanted().keys() <= overlapping, "due, but not queued"
        return seen

    def _cycle(self, before: Seen) -> tuple[ManagerResult, Seen]:
        """One cycle, which may leave somebody for the next, but writes nothing that is not due."""
        managed = self.engine.cycle()
        self.model.reap()
        seen = self.engine.seen()
        for name in seen.letters.keys() - before.letters.keys():
            assert name in self.model.given_up(), f"{name} has a dead letter too early"
            self.model.jobs[name].note("dead", self.model.now)
        wanted = self.model.wanted()
        known = {row.id for _, row in before.entries}
        for name, row in seen.entries:
            if row.id not in known:
                assert name in wanted, f"{name} was queued, but is not due"
                self.model.queue(wanted.pop(name))
        return managed, seen

    def _start_next(self) -> None:
        runnable = self.model.runnable()
        started = self.engine.start_next()
        if started is None:
            assert runnable == []
            return
        kind = (started.manifest, self.engine.origin_of(started.metadata_id), started.attempt)
        (entry, *_) = [each for each in runnable if (each.job, each.origin, each.attempt) == kind]
        first = min((-each.priority, each.created_at) for each in runnable)
        assert (-entry.priority, entry.created_at) == first, "started out of turn"
        self.model.begin(started.metadata_id, entry)

    def _finish(self, ends: dict[int, What], *, in_one_batch: bool) -> None:
        attempts = {number: run.attempt for number, run in self.model.runs.items()}
        every = [
            End(number, ENDS[how], gives_up=how == "given_up", attempt=attempts[number])
            for number, how in ends.items()
        ]
        for batch in [every] if in_one_batch else [[end] for end in every]:
            assert self.engine.finish(batch) == {end.metadata_id for end in batch}
        for number, how in ends.items():
            self.model.end(number, how)
        assert self.engine.finish(every) == set(), "ended twice"

    def check(self, seen: Seen | None = None) -> None:
        seen = seen or self.engine.seen()
        self._check_that_both_agree(seen)
        self._check_that_nobody_runs_too_often(seen)
        self._check_that_nobody_is_looked_at_too_late(seen)

    def _check_that_both_agree(self, seen: Seen) -> None:
        model = self.model
        assert seen.groups == model.groups
        assert {name: _standing_of(row) for name, row in seen.manifests.items()} == {
            name: (job.enabled, job.failures, job.last_success) for name, job in model.jobs.items()
        }
        assert sorted(seen.letters) == model.dead()
        assert seen.runs == {number: run.job for number, run in model.runs.items()}
        entries = sorted(_entry_of(name, row) for name, row in seen.entries)
        assert entries == sorted(_entry_of(entry.job, entry) for entry in model.entries)

    def _check_that_nobody_runs_too_often(self, seen: Seen) -> None:
        queued = [name for name, row in seen.entries if row.origin in BY_SCHEDULE]
        assert len(queued) == len(set(queued))
        for name, job in self.model.jobs.items():
            runs = [run for run in self.model.runs.values() if run.job == name and run.origin in BY_SCHEDULE]
            assert len(runs) <= job.most_instances

    def _check_that_nobody_is_looked_at_too_late(self, seen: Seen) -> None:
        rows = seen.manifests
        for name, job in self.model.jobs.items():
            look = rows[name].next_due_at
            if look is not None and look <= self.model.now:
                continue
            is_lost = job.enabled and not job.is_dead and job.has_failed_for_good
            assert not is_lost, f"{name} has failed for good, and nobody looks"
            if not self.model.is_held_back(job):
                missed = self._moments_missed(job, look)
                assert missed == [], f"{name} is due at {missed[0]}, and looked at not before {look}"

    def _moments_missed(self, job: Job, look: datetime | None) -> list[datetime]:
        """When it will be due before it is looked at, if nothing happens meanwhile."""
        now = self.model.now
        moments = [now, *(now + later for later in LATER)]
        if job.plan.max_instances > 1:  # nobody looks when its entry leaves the queue, but soon after
            moments = [job.next_after(now, job.last_occurrence or job.planned or now)]
        return [
            moment
            for moment in moments
            if (look is None or moment < look) and self.model.entry_for(job, moment) is not None
        ]


def _standing_of(row: Any) -> tuple[Any, ...]:
    return (row.enabled, row.failure_count, row.last_successful_run)


def _entry_of(name: str, entry: Any) -> tuple[Any, ...]:
    scheduled_at = "" if entry.scheduled_at is None else entry.scheduled_at.isoformat()
    return (name, entry.origin, entry.priority, entry.attempt, entry.created_at, scheduled_at)
