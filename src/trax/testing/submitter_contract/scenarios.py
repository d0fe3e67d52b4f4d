"""The scenarios of the submitter contract: what must hold for every engine, also after crashes."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from trax.records.states import State
from trax.testing.submitter_contract.engine import FAST_SETTINGS, GROUPS
from trax.testing.submitter_contract.harness import ScenarioHarness, expect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax.engine.submitter import Submission, Submitter
    from trax.testing.submitter_contract.engine import Engine, Workspace

Scenario: TypeAlias = Callable[[ScenarioHarness], Awaitable[None]]


async def play(scenario: Scenario, engine: Engine, site: Workspace) -> None:
    """Run one scenario; raises ContractBroken with the promise that the engine breaks."""
    harness = ScenarioHarness(engine, site)
    try:
        await scenario(harness)
    finally:
        await engine.stop()
        harness.close()


def name_of(scenario: Scenario) -> str:
    return getattr(scenario, "__name__", repr(scenario))


async def a_job_succeeds_and_its_record_says_so(harness: ScenarioHarness) -> None:
    async with harness.worker_side(), harness.server_side() as submitter:
        await harness.queue("plain")
        await harness.until_completed("plain")
        (record,) = await harness.records("plain")
    expect("the output is in the record", is_so=record.output == "PLAIN")
    expect("the record names the submitter", is_so=record.submitter == submitter.name)
    expect("the record has a start time", is_so=record.started_at is not None)
    await harness.check_each_ran_once(["plain"])


async def a_job_that_fails_is_tried_again_by_its_retry_policy(harness: ScenarioHarness) -> None:
    async with harness.worker_side(), harness.server_side():
        await harness.queue("flaky")
        await harness.until_completed("flaky")
        first, second = await harness.records("flaky")
    failure = (first.failure_exception, first.failure_junction, first.failure_reason)
    expect("the first run has failed", is_so=first.state is State.FAILED)
    expect(
        f"the record has exception and junction (got {failure})",
        is_so=failure == ("ValueError", "work", "flaky fails its first attempt"),
    )
    expect("the second attempt is a new record", is_so=(second.attempt, second.output) == (2, "FLAKY"))


async def a_job_that_takes_too_long_is_stopped(harness: ScenarioHarness) -> None:
    async with harness.worker_side(), harness.server_side():
        await harness.queue("late", train="dawdle")
        record = await harness.until_ended("late")
        await _wait_until_stopped(harness, "late")
    expect(f"it ends as failed (got {record.state})", is_so=record.state is State.FAILED)
    expect("the reason is a timeout", is_so=record.failure_exception == "RunTimedOut")


async def a_job_is_cancelled_by_a_person(harness: ScenarioHarness) -> None:
    harness.hold("unwanted")
    async with harness.worker_side(), harness.server_side():
        await harness.queue("unwanted")
        await harness.until_began("unwanted")
        (record,) = await harness.records("unwanted")
        await harness.app.executions.cancel([record.id])
        record = await harness.until_ended("unwanted")
        harness.release("unwanted")
    expect(f"it ends as cancelled (got {record.state})", is_so=record.state is State.CANCELLED)
    expect("it is not retried", is_so=len(await harness.records("unwanted")) == 1)


async def a_crash_of_the_worker_side_during_a_run_loses_nothing(harness: ScenarioHarness) -> None:
    harness.hold("victim")
    async with harness.server_side():
        await harness.engine.start(harness.site)
        await harness.queue("victim", "other")
        await harness.until_began("victim")
        await harness.until_completed("other")
        await harness.engine.kill()
        async with harness.worker_side():
            await harness.until_began("victim", times=2)
            harness.release("victim")
            await harness.until_completed("victim")
            first = (await harness.records("victim"))[0]
    expect(f"the run that was killed has failed (got {first.state})", is_so=first.state is State.FAILED)
    await harness.check_each_ran_once(["victim", "other"])


async def a_crash_of_the_server_side_before_the_hand_over_loses_nothing(harness: ScenarioHarness) -> None:
    await harness.queue("parcel")
    await harness.dispatch_only()
    (before,) = await harness.records("parcel")
    async with harness.worker_side(), harness.server_side():
        await harness.until_completed("parcel")
        (record,) = await harness.records("parcel")
    expect("the run was pending", is_so=before.state is State.PENDING)
    expect("it is the same run, and its first attempt", is_so=(record.id, record.attempt) == (before.id, 1))
    await harness.check_each_ran_once(["parcel"])


async def a_run_delivered_twice_is_executed_once(harness: ScenarioHarness) -> None:
    names = [f"twin-{number}" for number in range(20)]
    async with harness.worker_side(), harness.server_side(deliver_twice):
        await harness.queue(*names)
        await harness.until_completed(*names)
    expect("no attempt failed", is_so=len(await harness.records()) == len(names))
    await harness.check_each_ran_once(names)


async def jobs_queued_while_the_worker_side_is_down_run_when_it_is_back(harness: ScenarioHarness) -> None:
    names = [f"patient-{number}" for number in range(5)]
    async with harness.server_side():
        async with harness.worker_side():
            await harness.queue("before")
            await harness.until_completed("before")
        await harness.queue(*names)

        async def was_tried() -> bool:
            return bool(await harness.records(names[0]))

        await harness.until("the gate admits the first one", was_tried)
        async with harness.worker_side():
            await harness.until_completed(*names)
    await harness.check_each_ran_once(["before", *names])


async def a_crowd_stays_under_the_limits(harness: ScenarioHarness) -> None:
    """Measured by the jobs themselves: they begin after admission and end before their result is written."""
    groups: list[str | None] = [*GROUPS, None]
    names = {
        group: [f"{group}-{number}" for number in range(harness.site.crowd // len(groups))]
        for group in groups
    }
    everyone = [name for some in names.values() for name in some]
    async with harness.worker_side(), harness.server_side():
        for group, some in names.items():
            await harness.queue(*some, group=group)
        await harness.until_completed(*everyone)
    await harness.check_each_ran_once(everyone)
    most = harness.most_at_once()
    expect(
        f"at most {FAST_SETTINGS['max_active_jobs']} at once (got {most})",
        is_so=most <= FAST_SETTINGS["max_active_jobs"],
    )
    for group, limit in GROUPS.items():
        most = harness.most_at_once(f"{group}-")
        expect(f"at most {limit} of group {group!r} at once (got {most})", is_so=most <= limit)


SCENARIOS: Final[tuple[Scenario, ...]] = (
    a_job_succeeds_and_its_record_says_so,
    a_job_that_fails_is_tried_again_by_its_retry_policy,
    a_job_that_takes_too_long_is_stopped,
    a_job_is_cancelled_by_a_person,
    a_crash_of_the_worker_side_during_a_run_loses_nothing,
    a_crash_of_the_server_side_before_the_hand_over_loses_nothing,
    a_run_delivered_twice_is_executed_once,
    jobs_queued_while_the_worker_side_is_down_run_when_it_is_back,
    a_crowd_stays_under_the_limits,
)


async def _wait_until_stopped(harness: ScenarioHarness, name: str) -> None:
    async def has_stopped() -> bool:
        return any(line.event == "ended" for line in harness.job_events(name))

    await harness.until(f"job {name!r} itself is stopped", has_stopped)


def deliver_twice(submitter: Submitter) -> Submitter:
    """The same submitter, but each batch is submitted twice."""
    return (
        AsyncDoubleSubmitter(submitter)
        if inspect.iscoroutinefunction(submitter.submit)
        else DoubleSubmitter(submitter)
    )


class DoubleSubmitter:
    """Submits each batch twice; everything else is delegated."""

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


class AsyncDoubleSubmitter(DoubleSubmitter):
    """The same for a submitter whose `submit` is async."""

    async def submit(self, batch: Sequence[Submission], /) -> Any:
        await self._submitter.submit(batch)
        return await self._submitter.submit(batch)
