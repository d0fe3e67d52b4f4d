"""One promise each: what any engine has to keep, whoever executes, and whatever dies on the way."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from trax.records.states import State
from trax.testing.submitter_contract.site import GROUPS, QUICK
from trax.testing.submitter_contract.yard import Yard, expect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax.dispatch.submit import Submission, Submitter
    from trax.testing.submitter_contract.engine import Engine
    from trax.testing.submitter_contract.site import Site

Scenario: TypeAlias = Callable[[Yard], Awaitable[None]]


async def play(scenario: Scenario, engine: Engine, site: Site) -> None:
    """Have an engine keep one promise at a site; raises ContractBroken with the promise it does not keep."""
    yard = Yard(engine, site)
    try:
        await scenario(yard)
    finally:
        await engine.stop()
        yard.close()


def name_of(scenario: Scenario) -> str:
    return getattr(scenario, "__name__", repr(scenario))


async def a_job_succeeds_and_its_record_says_so(yard: Yard) -> None:
    async with yard.far(), yard.near() as submitter:
        await yard.queue("plain")
        await yard.until_completed("plain")
        (record,) = await yard.records("plain")
    expect("the output is in the record", is_so=record.output == "PLAIN")
    expect("the record names the submitter", is_so=record.submitter == submitter.name)
    expect("the record says when it began", is_so=record.started_at is not None)
    await yard.nothing_is_lost_or_doubled(["plain"])


async def a_job_that_fails_is_tried_again_by_its_retry_policy(yard: Yard) -> None:
    async with yard.far(), yard.near():
        await yard.queue("flaky")
        await yard.until_completed("flaky")
        first, second = await yard.records("flaky")
    failure = (first.failure_exception, first.failure_junction, first.failure_reason)
    expect("the first run has failed", is_so=first.state is State.FAILED)
    expect(
        f"the record says what was raised, and where (got {failure})",
        is_so=failure == ("ValueError", "work", "flaky never works the first time"),
    )
    expect("the second attempt is a new record", is_so=(second.attempt, second.output) == (2, "FLAKY"))


async def a_job_that_takes_too_long_is_stopped(yard: Yard) -> None:
    async with yard.far(), yard.near():
        await yard.queue("late", train="dawdle")
        record = await yard.until_ended("late")
        await _lets_go(yard, "late")
    expect(f"it ends as cancelled (got {record.state})", is_so=record.state is State.CANCELLED)
    expect("the reason is the time it took", is_so="timed out" in str(record.failure_reason))


async def a_job_is_cancelled_by_a_person(yard: Yard) -> None:
    yard.hold("unwanted")
    async with yard.far(), yard.near():
        await yard.queue("unwanted")
        await yard.until_began("unwanted")
        (record,) = await yard.records("unwanted")
        await yard.app.executions.cancel([record.id])
        record = await yard.until_ended("unwanted")
        yard.release("unwanted")
    expect(f"it ends as cancelled (got {record.state})", is_so=record.state is State.CANCELLED)
    expect("it is not tried again", is_so=len(await yard.records("unwanted")) == 1)


async def a_far_side_that_dies_in_a_run_loses_nothing(yard: Yard) -> None:
    yard.hold("victim")
    async with yard.near():
        await yard.engine.start(yard.site)
        await yard.queue("victim", "other")
        await yard.until_began("victim")
        await yard.until_completed("other")
        await yard.engine.kill()
        async with yard.far():
            await yard.until_began("victim", times=2)
            yard.release("victim")
            await yard.until_completed("victim")
            first = (await yard.records("victim"))[0]
    expect(f"the run that died has failed (got {first.state})", is_so=first.state is State.FAILED)
    await yard.nothing_is_lost_or_doubled(["victim", "other"])


async def a_near_side_that_dies_before_handing_over_loses_nothing(yard: Yard) -> None:
    await yard.queue("parcel")
    await yard.let_in()
    (before,) = await yard.records("parcel")
    async with yard.far(), yard.near():
        await yard.until_completed("parcel")
        (record,) = await yard.records("parcel")
    expect("the run waited to be handed over", is_so=before.state is State.PENDING)
    expect("it is the same run, and its first attempt", is_so=(record.id, record.attempt) == (before.id, 1))
    await yard.nothing_is_lost_or_doubled(["parcel"])


async def what_is_delivered_twice_is_executed_once(yard: Yard) -> None:
    names = [f"twin-{number}" for number in range(20)]
    async with yard.far(), yard.near(delivering_twice):
        await yard.queue(*names)
        await yard.until_completed(*names)
    expect("no attempt failed", is_so=len(await yard.records()) == len(names))
    await yard.nothing_is_lost_or_doubled(names)


async def what_is_queued_while_the_far_side_is_down_runs_when_it_is_back(yard: Yard) -> None:
    names = [f"patient-{number}" for number in range(5)]
    async with yard.near():
        async with yard.far():
            await yard.queue("before")
            await yard.until_completed("before")
        await yard.queue(*names)

        async def was_tried() -> bool:
            return bool(await yard.records(names[0]))

        await yard.until("the gate lets the first one in", was_tried)
        async with yard.far():
            await yard.until_completed(*names)
    await yard.nothing_is_lost_or_doubled(["before", *names])


async def a_crowd_stays_under_the_limits(yard: Yard) -> None:
    """Measured by the jobs themselves: what they note begins after the gate, and ends before it is told."""
    groups: list[str | None] = [*GROUPS, None]
    names = {
        group: [f"{group}-{number}" for number in range(yard.site.crowd // len(groups))] for group in groups
    }
    everyone = [name for some in names.values() for name in some]
    async with yard.far(), yard.near():
        for group, some in names.items():
            await yard.queue(*some, group=group)
        await yard.until_completed(*everyone)
    await yard.nothing_is_lost_or_doubled(everyone)
    most = yard.most_at_once()
    expect(
        f"no more than {QUICK['max_active_jobs']} at once (were {most})",
        is_so=most <= QUICK["max_active_jobs"],
    )
    for group, limit in GROUPS.items():
        most = yard.most_at_once(f"{group}-")
        expect(f"no more than {limit} of group {group!r} at once (were {most})", is_so=most <= limit)


SCENARIOS: Final[tuple[Scenario, ...]] = (
    a_job_succeeds_and_its_record_says_so,
    a_job_that_fails_is_tried_again_by_its_retry_policy,
    a_job_that_takes_too_long_is_stopped,
    a_job_is_cancelled_by_a_person,
    a_far_side_that_dies_in_a_run_loses_nothing,
    a_near_side_that_dies_before_handing_over_loses_nothing,
    what_is_delivered_twice_is_executed_once,
    what_is_queued_while_the_far_side_is_down_runs_when_it_is_back,
    a_crowd_stays_under_the_limits,
)


async def _lets_go(yard: Yard, name: str) -> None:
    async def has_stopped() -> bool:
        return any(line.event == "ended" for line in yard.noted(name))

    await yard.until(f"job {name!r} itself learns that it is to stop", has_stopped)


def delivering_twice(submitter: Submitter) -> Submitter:
    """The same submitter, but each batch is handed over two times."""
    return AsyncTwice(submitter) if inspect.iscoroutinefunction(submitter.submit) else Twice(submitter)


class Twice:
    """Hands over each batch two times; all else is as the submitter says."""

    def __init__(self, submitter: Any) -> None:
        self._submitter = submitter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._submitter, name)

    @property
    def name(self) -> str:
        return self._submitter.name

    def submit(self, batch: Sequence[Submission], /) -> Any:
        self._submitter.submit(batch)
        return self._submitter.submit(batch)


class AsyncTwice(Twice):
    """The same for a submitter whose `submit` is async."""

    async def submit(self, batch: Sequence[Submission], /) -> Any:
        await self._submitter.submit(batch)
        return await self._submitter.submit(batch)
