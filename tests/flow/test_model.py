"""The engine against the model: whatever happens in whatever order, both must say the same.

`TRAX_MODEL_EXAMPLES=3000 .venv/bin/pytest tests/flow/test_model.py` looks further, at random. A story that
fails is printed step by step, with a `@reproduce_failure` line to replay it. What such runs have found is
told below as short stories.
"""

from __future__ import annotations

import os
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import HealthCheck, Phase, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.support.engine_and_model import ALL, NAMES, EngineAndModel, Turn
from tests.support.fault_proxy import COMMIT_FAULTS, Fault, fault_proxy
from tests.support.faults import ENDS, MANIFESTS, TRAINS, Site
from tests.support.model import Plan, What
from tests.support.stepwise import Engine

from trax.records.worker import HeartbeatStreak

if TYPE_CHECKING:
    from collections.abc import Generator


QUIET: Final = settings(
    deadline=None,
    database=None,
    print_blob=True,
    stateful_step_count=30,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
WANTED: Final = os.environ.get("TRAX_MODEL_EXAMPLES")
IS_FIXED: Final = not (WANTED or os.environ.get("CI"))
"""The same stories each time, but in CI others each time; one that fails is printed, to be replayed."""
FEW: Final = settings(QUIET, max_examples=max(5, int(WANTED or 0) // 10), derandomize=IS_FIXED)
IN_MEMORY: Final = settings(QUIET, max_examples=int(WANTED or 25), derandomize=IS_FIXED)

names = st.sampled_from(NAMES)
groups = st.sampled_from(["a", "b"])
mostly = st.sampled_from([True, True, False])
hows: st.SearchStrategy[What] = st.sampled_from(
    ["success", "success", "success", "failure", "failure", "failure", "given_up", "cancelled", "cancelled"]
)
faults = st.sampled_from([None, None, None, *COMMIT_FAULTS])
repeated = st.sampled_from([None, None, None, *COMMIT_FAULTS, Fault.DOUBLED])
"""Faults of what a server tries again: it may also arrive twice."""
turns = st.builds(
    Turn,
    minutes=st.sampled_from([0, 0, 1, 2, 5, 7, 10, 20, 40, 61, 7 * 60, 24 * 60, 3 * 24 * 60]),
    cycles=st.sampled_from([0, 1, ALL, ALL, ALL]),
    starts=st.sampled_from([0, 1, 1, 2, 3]),
    hows=st.lists(hows, max_size=3).map(tuple),
    in_one_batch=st.booleans(),
)


@st.composite
def plans(draw: st.DrawFn, name: str) -> Plan:
    parents = NAMES[: NAMES.index(name)]
    kinds = ["interval", "anchored", "cron", "once"] + ["dependent"] * (3 * bool(parents))
    kind: Any = draw(st.sampled_from(kinds))
    is_regular = kind in {"interval", "anchored", "cron"}
    misfires: Any = st.sampled_from(["fire_once_now", "do_nothing", "fire_all"])
    excluded = st.sets(st.sampled_from(["noon", "night", "tuesday"]), max_size=2)
    start = draw(st.sampled_from(["", "now", "later"])) if is_regular else ""
    return Plan(
        kind=kind,
        minutes=draw(st.sampled_from([5, 7, 60])),
        cron=draw(st.sampled_from(["*/15 * * * *", "0 */6 * * *", "30 3 * * *"])) if kind == "cron" else "",
        parent=draw(st.sampled_from(parents)) if kind == "dependent" else None,
        exclusions=tuple(sorted(draw(excluded))) if draw(mostly) else (),
        max_retries=draw(st.sampled_from([0, 1, 2, 3, 7])),
        max_instances=draw(st.sampled_from([1, 1, 2])) if is_regular else 1,
        misfire=draw(misfires) if is_regular else "fire_once_now",
        starts_later=start == "later",
        starts_now=start == "now",
        enabled=draw(st.sampled_from([None, None, None, None, True, False])),
    )


class AnyStory(RuleBasedStateMachine):
    """Somebody does something, then things go on by themselves for a while, then somebody does something."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.railway = EngineAndModel(engine)
        self.model = self.railway.model

    @initialize(data=st.data(), chosen=st.sets(names, min_size=2))
    def begin(self, data: st.DataObject, chosen: set[str]) -> None:
        self.railway.deploy(self._code(data, chosen))

    @rule(data=st.data(), name=names, then=turns)
    def declare(self, data: st.DataObject, name: str, then: Turn) -> None:
        plan = data.draw(plans(name))
        assume(plan.parent is None or plan.parent in self.model.jobs)
        self.railway.declare(name, plan)
        self.railway.go_on(then)

    @rule(data=st.data(), chosen=st.sets(names, max_size=2), opened=st.sets(groups, max_size=1), then=turns)
    def deploy(self, data: st.DataObject, chosen: set[str], opened: set[str], then: Turn) -> None:
        self.railway.deploy(self._code(data, chosen), opened)
        self.railway.go_on(then)

    def _code(self, data: st.DataObject, chosen: set[str]) -> dict[str, Plan]:
        code: dict[str, Plan] = {}
        for name in sorted(chosen):
            plan = data.draw(plans(name))
            if plan.parent is None or plan.parent in code or plan.parent in self.railway.code:
                code[name] = plan
        return code

    @precondition(lambda self: self.railway.code)
    @rule(data=st.data(), then=turns)
    def deploy_less(self, data: st.DataObject, then: Turn) -> None:
        self.railway.deploy_without(data.draw(st.sampled_from(sorted(self.railway.code))))
        self.railway.go_on(then)

    @rule(then=turns)
    def wait(self, then: Turn) -> None:
        self.railway.go_on(then)

    @rule(then=turns)
    def wait_for_the_next_look(self, then: Turn) -> None:
        self.railway.go_to_the_next_look()
        self.railway.go_on(replace(then, minutes=0))

    @precondition(lambda self: self.model.held())
    @rule(data=st.data(), then=turns)
    def crash(self, data: st.DataObject, then: Turn) -> None:
        self.railway.lose(data.draw(st.sampled_from(self.model.held())))
        self.railway.go_on(then)

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data(), then=turns)
    def delete(self, data: st.DataObject, then: Turn) -> None:
        self.railway.delete(self._some_job(data))
        self.railway.go_on(then)

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data(), enabled=mostly, then=turns)
    def switch(self, data: st.DataObject, enabled: bool, then: Turn) -> None:
        self.railway.switch(self._some_job(data), enabled=enabled)
        self.railway.go_on(then)

    @precondition(lambda self: self.model.groups)
    @rule(data=st.data(), enabled=mostly, then=turns)
    def switch_group(self, data: st.DataObject, enabled: bool, then: Turn) -> None:
        self.railway.switch_group(data.draw(st.sampled_from(sorted(self.model.groups))), enabled=enabled)
        self.railway.go_on(then)

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data(), minutes=st.sampled_from([None, None, 10, 90]), then=turns)
    def trigger(self, data: st.DataObject, minutes: int | None, then: Turn) -> None:
        self.railway.trigger(self._some_job(data), minutes)
        self.railway.go_on(then)

    @precondition(lambda self: self.model.dead())
    @rule(data=st.data(), then=turns)
    def acknowledge(self, data: st.DataObject, then: Turn) -> None:
        self.railway.acknowledge(data.draw(st.sampled_from(self.model.dead())))
        self.railway.go_on(then)

    @precondition(lambda self: self.model.dead())
    @rule(data=st.data(), then=turns)
    def requeue(self, data: st.DataObject, then: Turn) -> None:
        self.railway.requeue(data.draw(st.sampled_from(self.model.dead())))
        self.railway.go_on(then)

    def _some_job(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.model.jobs)))


class AnyFault(RuleBasedStateMachine):
    """Everything that may happen to a fleet, in any order. Nothing is predicted; the promises must hold."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.site = site
        site.begin()

    @initialize(names=st.sets(st.sampled_from(MANIFESTS), min_size=1))
    def begin(self, names: set[str]) -> None:
        self.deploy(names)

    @rule(names=st.sets(st.sampled_from(MANIFESTS)))
    def deploy(self, names: set[str]) -> None:
        self.site.deploy(names)
        self.names = sorted(names)

    @rule(
        train=st.sampled_from(TRAINS),
        unique=st.sampled_from([None, "key"]),
        group=st.sampled_from([None, "etl"]),
        minutes=st.sampled_from([0, 0, 5]),
        fault=faults,
    )
    def queue(
        self, train: str, unique: str | None, group: str | None, minutes: int, fault: Fault | None
    ) -> None:
        with self.site.fault(fault):
            self.site.queue(train, unique=unique, group=group, minutes=minutes)

    @rule(claims=st.booleans())
    def change_role(self, claims: bool) -> None:
        """The server has a worker of its own, or another process claims."""
        self.site.claims_at_gate = claims

    @rule(name=st.sampled_from(MANIFESTS), minutes=st.sampled_from([None, 5, 60 * 24]))
    def trigger(self, name: str, minutes: int | None) -> None:
        delay = None if minutes is None else timedelta(minutes=minutes)
        self.site.act(self.site.app.manifests.trigger(name, delay=delay))

    @rule(name=st.sampled_from(MANIFESTS), enabled=mostly)
    def switch(self, name: str, enabled: bool) -> None:
        manifests = self.site.app.manifests
        self.site.act(manifests.enable(name) if enabled else manifests.disable(name))

    @rule(name=st.sampled_from(MANIFESTS))
    def delete(self, name: str) -> None:
        self.site.act(self.site.app.manifests.delete(name))

    @precondition(lambda self: self.site.accepted)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        queued = self.site.do(self.site.app.work_queue.list(status="queued", limit=100))
        if queued:
            entry = data.draw(st.sampled_from(sorted(entry.id for entry in queued)))
            self.site.act(self.site.app.work_queue.cancel([entry]))

    @rule(requeues=st.booleans())
    def deal_with_letters(self, requeues: bool) -> None:
        letters = self.site.app.dead_letters
        self.site.act(letters.requeue_all() if requeues else letters.acknowledge_all("dealt with"))

    @rule(train=st.sampled_from(TRAINS))
    def switch_worker(self, train: str) -> None:
        self.site.switch_worker(train)

    @rule()
    def lose_sight(self) -> None:
        """An outage: whatever is silent, this server was, too."""
        self.site.watch = HeartbeatStreak.empty()

    @rule()
    def see_again(self) -> None:
        self.site.watch = None

    @precondition(lambda self: self.site.held)
    @rule(data=st.data(), how=st.sampled_from(sorted(ENDS)), fault=repeated)
    def end(self, data: st.DataObject, how: str, fault: Fault | None) -> None:
        run = data.draw(st.sampled_from(sorted(self.site.held)))
        if self.site.held[run].manifest == "parent":
            self.site.activate(run)
        with self.site.fault(fault):
            self.site.end(run, how)

    @rule(minutes=st.sampled_from([0, 1, 5, 25, 60 * 24]), starts=st.booleans(), fault=repeated)
    def go_on(self, minutes: int, starts: bool, fault: Fault | None) -> None:
        self.site.now += timedelta(minutes=minutes)
        with self.site.fault(fault):
            self.site.cycle()
        self.site.check_at_rest()
        if starts:
            with self.site.fault(fault):
                self.site.start_next()

    @invariant()
    def promises_hold(self) -> None:
        self.site.check()


@contextmanager
def site_on(url: str) -> Generator[Site]:
    site = Site(url)
    try:
        yield site
    finally:
        site.close()


def test_the_promises_hold_in_any_history() -> None:
    with site_on("memory://") as site:
        run_state_machine_as_test(lambda: AnyFault(site), settings=IN_MEMORY)  # pyright: ignore[reportArgumentType]


def test_the_promises_hold_in_any_history_on_postgresql(postgres_url: str) -> None:
    """Also faults on the way to it: commits that are refused, answers that are lost."""
    with fault_proxy(postgres_url) as proxy, closing(Site(proxy.url, proxy)) as site:
        proxy.refusal = "53100"
        run_state_machine_as_test(lambda: AnyFault(site), settings=FEW)  # pyright: ignore[reportArgumentType]


@contextmanager
def engine_on(url: str) -> Generator[Engine]:
    engine = Engine(url)
    try:
        yield engine
    finally:
        engine.close()


def test_the_engine_agrees_with_the_model() -> None:
    with engine_on("memory://") as engine:
        run_state_machine_as_test(lambda: AnyStory(engine), settings=IN_MEMORY)  # pyright: ignore[reportArgumentType]


def test_the_engine_agrees_with_the_model_on_postgresql(postgres_url: str) -> None:
    with engine_on(postgres_url) as engine:
        run_state_machine_as_test(lambda: AnyStory(engine), settings=FEW)  # pyright: ignore[reportArgumentType]


# stories


@pytest.fixture
def railway() -> Generator[EngineAndModel]:
    with engine_on("memory://") as engine:
        yield EngineAndModel(engine)


HOURLY: Final = Plan(kind="interval", minutes=60)


def test_a_trigger_returns_a_delayed_entry_that_has_become_due(railway: EngineAndModel) -> None:
    railway.declare("a1", replace(HOURLY, enabled=False))
    railway.trigger("a1", minutes=10)
    railway.go_on(Turn(minutes=10))

    railway.trigger("a1")

    assert len(railway.model.entries) == 1


def test_cancelling_an_extra_run_does_not_stop_a_once_manifest(
    railway: EngineAndModel,
) -> None:
    railway.declare("a1", Plan(kind="once", minutes=60))
    railway.trigger("a1")
    railway.go_on(Turn(starts=1))
    railway.switch("a1", enabled=True)
    railway.go_on(Turn(hows=("cancelled",)))

    railway.go_on(Turn(minutes=60))

    assert [entry.origin for entry in railway.model.entries] == ["schedule"]


def test_a_cancelled_once_manifest_starts_only_when_it_is_enabled(railway: EngineAndModel) -> None:
    railway.declare("a1", Plan(kind="once", minutes=5))
    railway.go_on(Turn(minutes=5, starts=1, hows=("cancelled",)))

    railway.switch_group("a", enabled=True)
    railway.go_on(Turn(minutes=1))
    assert railway.model.entries == []
    railway.switch("a1", enabled=True)
    railway.go_on(Turn())

    assert [entry.origin for entry in railway.model.entries] == ["schedule"]


def test_a_cancelled_once_manifest_runs_when_it_is_scheduled_again(railway: EngineAndModel) -> None:
    railway.declare("a1", Plan(kind="once", minutes=5))
    railway.go_on(Turn(minutes=5, starts=1, hows=("cancelled",)))

    railway.declare("a1", Plan(kind="once", minutes=5))
    railway.go_on(Turn(minutes=5))

    assert [entry.origin for entry in railway.model.entries] == ["schedule"]


def test_a_cancelled_retry_waits_for_the_next_occurrence_after_an_enable(
    railway: EngineAndModel,
) -> None:
    railway.declare("a1", HOURLY)
    railway.go_on(Turn(starts=1, hows=("failure",)))
    railway.go_on(Turn())
    railway.go_on(Turn(minutes=5, starts=1, hows=("cancelled",)))

    railway.switch("a1", enabled=True)
    railway.go_on(Turn())
    assert railway.model.entries == []
    railway.go_on(Turn(minutes=60))

    assert [entry.origin for entry in railway.model.entries] == ["schedule"]


def test_a_failure_is_retried_though_a_run_was_cancelled_before_it(railway: EngineAndModel) -> None:
    railway.declare("a1", HOURLY)
    railway.go_on(Turn(starts=1, hows=("cancelled",)))
    railway.trigger("a1")

    railway.go_on(Turn(starts=1, hows=("failure",)))
    railway.go_on(Turn())

    assert [entry.origin for entry in railway.model.entries] == ["retry"]


def test_a_cancelled_run_does_not_hide_a_failure_that_ended_with_it(railway: EngineAndModel) -> None:
    railway.declare("a1", replace(HOURLY, max_retries=1))
    railway.go_on(Turn(starts=1))
    railway.trigger("a1")

    railway.go_on(Turn(starts=1, hows=("failure", "cancelled"), in_one_batch=True))
    railway.go_on(Turn())

    assert railway.model.dead() == ["a1"]


@pytest.mark.parametrize("starts", [1, 2])
def test_a_failure_for_good_needs_no_other_run_to_end_first(railway: EngineAndModel, starts: int) -> None:
    railway.declare("a1", replace(HOURLY, max_retries=1))
    railway.trigger("a1")
    railway.go_on(Turn(starts=starts, hows=("failure",)))

    railway.go_on(Turn())

    assert railway.model.dead() == ["a1"]
    assert len(railway.model.entries) + len(railway.model.runs) == 1


def test_a_requeued_manifest_is_not_queued_by_its_schedule(railway: EngineAndModel) -> None:
    railway.declare("a1", replace(HOURLY, max_retries=1))
    railway.go_on(Turn(starts=1, hows=("failure",)))
    railway.go_on(Turn())
    railway.requeue("a1")

    railway.switch("a1", enabled=True)
    railway.go_on(Turn(minutes=60))

    assert [entry.origin for entry in railway.model.entries] == ["requeue"]


def test_a_letter_does_not_wait_for_a_delayed_trigger(railway: EngineAndModel) -> None:
    railway.declare("a1", replace(HOURLY, max_retries=1))
    railway.go_on(Turn(starts=1, hows=("failure",)))
    railway.trigger("a1", minutes=90)
    railway.go_on(Turn())
    railway.requeue("a1")

    railway.go_on(Turn())

    assert [entry.origin for entry in railway.model.entries] == ["trigger", "requeue"]


def test_where_runs_overlap_a_failure_is_retried_once(railway: EngineAndModel) -> None:
    railway.declare("a1", replace(HOURLY, max_instances=2))
    railway.go_on(Turn(starts=1, hows=("failure",)))
    railway.go_on(Turn())
    railway.go_on(Turn(minutes=5, starts=1))

    railway.switch("a1", enabled=True)
    railway.go_on(Turn())

    assert railway.model.entries == []


def test_a_new_schedule_does_not_delay_a_dead_letter(railway: EngineAndModel) -> None:
    railway.declare("a1", replace(HOURLY, max_retries=1))
    railway.go_on(Turn(starts=1, hows=("failure",)))

    railway.declare("a1", Plan(kind="cron", cron="30 3 * * *", max_retries=1, starts_later=True))
    railway.go_on(Turn())

    assert railway.model.dead() == ["a1"]


def test_a_new_rate_keeps_to_the_moments_counted_from_when_the_manifest_was_made(
    railway: EngineAndModel,
) -> None:
    railway.declare("a1", replace(HOURLY, enabled=False))
    railway.go_on(Turn(minutes=2))

    railway.declare("a1", Plan(kind="anchored", minutes=5, starts_later=True, enabled=True))
    railway.go_on(Turn(minutes=3))

    assert len(railway.model.entries) == 1


def test_a_group_enabled_in_code_continues(railway: EngineAndModel) -> None:
    railway.deploy({"a1": HOURLY})
    railway.switch_group("a", enabled=False)
    railway.go_on(Turn())

    railway.deploy({}, opened=["a"])
    railway.go_on(Turn())

    assert len(railway.model.entries) == 1


@pytest.mark.parametrize("parent", [replace(HOURLY, enabled=True), Plan(kind="once", enabled=False)])
def test_enabling_a_parent_in_code_starts_its_waiting_dependents(
    railway: EngineAndModel, parent: Plan
) -> None:
    railway.deploy({"a1": replace(HOURLY, enabled=False), "a2": Plan(kind="dependent", parent="a1")})
    railway.trigger("a1")
    railway.go_on(Turn(starts=1, hows=("success",)))
    railway.go_on(Turn())
    assert railway.model.entries == []

    railway.deploy({"a1": parent})
    railway.go_on(Turn())

    assert [entry.job for entry in railway.model.entries] == ["a2"]


def test_a_dependent_with_a_new_parent_is_evaluated(railway: EngineAndModel) -> None:
    railway.deploy({"a1": HOURLY, "a2": HOURLY, "b1": Plan(kind="dependent", parent="a1")})
    railway.go_on(Turn(starts=2, hows=("failure", "success")))
    railway.go_on(Turn())
    assert [entry.job for entry in railway.model.entries] == ["a1"]

    railway.deploy({"b1": Plan(kind="dependent", parent="a2")})
    railway.go_on(Turn())

    assert [entry.job for entry in railway.model.entries] == ["a1", "b1"]


def test_an_exclusion_does_not_hold_back_the_retry_of_a_dependent(railway: EngineAndModel) -> None:
    railway.deploy({"a1": HOURLY, "a2": Plan(kind="dependent", parent="a1", exclusions=("noon",))})
    railway.go_on(Turn(minutes=30, starts=1, hows=("success",)))
    railway.go_on(Turn(starts=1, hows=("failure",)))

    railway.go_on(Turn())

    assert [entry.origin for entry in railway.model.entries] == ["retry"]
