"""The duties of a process: a server, a `Harness` and a simulation drive the same ones."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from trax import Trax
from trax.events import Topic
from trax.inspect import virtual_server
from trax.inspect.simulation import DrawnJob, Simulation
from trax.inspect.virtual_server import VirtualServer
from trax.server import duties as server_duties
from trax.server import roles
from trax.store import workers
from trax.testing import Harness, harness
from trax.worker.duties import WAKES, Duty, Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from trax import Submission
    from trax.inspect.virtual_server import Role
    from trax.store.runs.claim import Claimed

HAND_OVER = "hand_over to remote"
SCHEDULER = {
    "manifest_manager",
    "job_dispatcher",
    "metadata_cleanup",
    "dead_letter_cleanup",
    "session_reaper",
    "totals",
    "watchdog",
}
BY_ROLE = {
    "all": {*SCHEDULER, "finisher", "heartbeat"},
    "scheduler": {*SCHEDULER, "heartbeat"},
    "worker": {"claimer", "finisher", "heartbeat"},
}
"""The duties of each role, in an app without submitters."""
HOUR = timedelta(hours=1)
START = datetime(2027, 3, 1, tzinfo=UTC)


class Turns:
    """Notes the name of each duty that has a turn, whatever drives it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        self._had_one = asyncio.Event()
        for driver in (roles, harness, virtual_server):
            build: Callable[..., list[Duty]] = driver.build_duties
            monkeypatch.setattr(driver, "build_duties", self._noted(build))
        hand_over: Callable[..., Duty] = harness.hand_over_duty

        def hand_over_and_note(*given: Any) -> Duty:
            return self._note(hand_over(*given))

        monkeypatch.setattr(harness, "hand_over_duty", hand_over_and_note)

    async def wait_for(self, names: Iterable[str]) -> None:
        """Wait until each of these duties had a turn."""
        async with asyncio.timeout(60):
            while set(names) - set(self.names):
                self._had_one.clear()
                await self._had_one.wait()

    def _noted(self, build: Callable[..., list[Duty]]) -> Callable[..., list[Duty]]:
        def build_and_note(*given: Any, **options: Any) -> list[Duty]:
            return [self._note(duty) for duty in build(*given, **options)]

        return build_and_note

    def _note(self, duty: Duty) -> Duty:
        """The duty, woken by each of its topics whether there is something to do or not."""

        async def turn() -> Turn:
            result = await duty.turn()
            self.names.append(duty.name)
            self._had_one.set()
            return result

        def is_woken(_: Topic) -> bool:
            return True

        return replace(duty, turn=turn, needs_wake=is_woken)


class Remote:
    name = "remote"
    batch_size = 1

    async def submit(self, batch: Sequence[Submission]) -> list[None]:
        return [None for _ in batch]


class Instant:
    """Every simulated job takes a second."""

    def draw(self, job: Claimed, server: VirtualServer) -> DrawnJob:  # noqa: ARG002 - a `Workload`
        return DrawnJob(1.0)


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    monkeypatch.setattr(server_duties, "HOUSEKEEPING_DELAY_SECONDS", 0)
    return Turns(monkeypatch)


def build_app(url: str = "memory://", **settings: Any) -> Trax:
    return Trax(url, polling_interval=HOUR, local_polling_interval=HOUR, **settings)


def woken_by(topic: Topic, role: str) -> set[str]:
    """The duties of a role that a topic wakes, by the table; a dispatcher stands for a claimer."""
    names = set(WAKES[topic])
    if role == "all" and "claimer" in names:
        names.add("job_dispatcher")
    return names & BY_ROLE[role]


def test_each_name_in_the_table_of_wakes_is_that_of_a_duty() -> None:
    named = set[str]().union(*WAKES.values())

    assert named <= {*BY_ROLE["all"], *BY_ROLE["worker"], "hand_over"}


@pytest.mark.parametrize("role", BY_ROLE)
async def test_a_server_runs_each_duty_of_its_role_and_each_topic_wakes_those_of_the_table(
    url: str, role: str, turns: Turns
) -> None:
    app = build_app(url, heartbeat_interval=0.2)
    await app.start(role)
    await turns.wait_for(BY_ROLE[role])
    names = {loop.name for loop in app.loops}

    for topic in WAKES:
        turns.names.clear()
        app.context.events.emit(topic)
        await turns.wait_for(woken_by(topic, role))

    await app.stop()
    assert names == BY_ROLE[role]


async def test_a_server_hands_over_when_runs_are_pending(url: str, turns: Turns) -> None:
    app = build_app(url)

    @app.train
    async def work(_number: int) -> None: ...

    app.route(work, to=Remote())
    await app.start()
    await turns.wait_for([HAND_OVER])

    for topic in (Topic.PENDING, Topic.SETTING):
        turns.names.clear()
        app.context.events.emit(topic)
        await turns.wait_for([HAND_OVER])

    await app.stop()


async def test_a_harness_runs_each_duty_that_a_server_has(url: str, turns: Turns) -> None:
    app = Trax(url)

    @app.train
    async def work(_number: int) -> None:
        await h.cycle("manifest_manager")  # while a worker exists, its heartbeat is sent, too

    @app.train
    async def remote(_number: int) -> None: ...

    app.route(remote, to=Remote())
    async with Harness(app) as h:
        for name in (*SCHEDULER, "hand_over"):
            await h.cycle(name)
        assert set(turns.names) == {*SCHEDULER, HAND_OVER}
        await app.queue(work, 1)
        await h.cycle("job_dispatcher")
        await h.work()
        assert set(turns.names) == {*SCHEDULER, HAND_OVER, *BY_ROLE["worker"]}
        turns.names.clear()
        await app.queue(work, 2)
        await h.run_until_idle()

    used = {"manifest_manager", "job_dispatcher", "claimer", "finisher", "heartbeat", HAND_OVER}
    assert set(turns.names) == used


@pytest.mark.parametrize("role", BY_ROLE)
async def test_a_simulated_server_runs_each_duty_of_its_role_and_each_topic_wakes_those_of_the_table(
    role: Role, turns: Turns
) -> None:
    app, simulation = build_app(), Simulation(1, START)
    with simulation.open():
        server = VirtualServer(
            simulation, "server", app.context, app.context.declarations.timetable(), Instant(), role=role
        )
        server.start()
        simulation.run_until(START + HOUR / 6)
        assert set(turns.names) == BY_ROLE[role]

        for topic in WAKES:
            turns.names.clear()
            server.context.events.emit(topic)
            simulation.run_until(simulation.now)
            assert set(turns.names) >= woken_by(topic, role)
            assert set(turns.names) <= woken_by(topic, role) | {"heartbeat", "session_reaper"}


async def test_a_scheduler_that_was_declared_lost_registers_again(url: str, turns: Turns) -> None:
    app = build_app(url, heartbeat_interval=0.1)
    await app.start("scheduler")
    store = await app.context.store.open()
    [before] = store.read(workers.servers, alive_since=START - 10_000 * HOUR)
    store.run(workers.remove, before.id)

    for _ in range(2):  # the first of them may have begun before
        turns.names.clear()
        await turns.wait_for(["heartbeat"])
    [after] = store.read(workers.servers, alive_since=START - 10_000 * HOUR)

    await app.stop()
    assert after.id > before.id
    assert store.read(workers.servers, alive_since=START - 10_000 * HOUR) == []
