"""Run the server side of a contract scenario, and read its records and job events."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from trax.records.nouns import RunFilter
from trax.records.states import State
from trax.store.runs.run_lists import RUNS
from trax.worker.dispatcher import dispatch_now

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

    from trax.engine.submitter import Submitter
    from trax.records.metadata import Metadata
    from trax.testing.submitter_contract.engine import Engine, Workspace

TIMEOUT_SECONDS: Final = 120
ALL: Final = 100_000


class ContractBroken(AssertionError):
    """A promise of the submitter contract that the engine breaks."""


class JobEvent(NamedTuple):
    """An event of a job: `began` or `ended`, with run, job name and process."""

    event: str
    metadata_id: int
    name: str
    pid: int


class ScenarioHarness:
    """A server side whose runs all go to the engine, and the jobs of its worker side."""

    def __init__(self, engine: Engine, site: Workspace) -> None:
        self.engine = engine
        self.site = site
        self.app = site.app()

    @asynccontextmanager
    async def server_side(
        self, wrap: Callable[[Submitter], Submitter] = lambda submitter: submitter
    ) -> AsyncGenerator[Submitter]:
        """Run the scheduler during the block; it submits all runs to the engine."""
        self.app.submitters.default = submitter = wrap(self.engine.submitter(self.app))
        await self.app.start("scheduler")
        try:
            yield submitter
        finally:
            await self.app.stop()

    @asynccontextmanager
    async def worker_side(self) -> AsyncGenerator[None]:
        """Run the worker side during the block."""
        await self.engine.start(self.site)
        try:
            yield
        finally:
            await self.engine.stop()

    async def dispatch_only(self) -> None:
        """Admit queued jobs but submit nothing, as if the server crashed at that moment."""
        self.app.submitters.default = self.engine.submitter(self.app)
        store = await self.app.context.store.open()
        await store.call(dispatch_now, store, self.app.context)
        self.close()
        self.app = self.site.app()

    def close(self) -> None:
        """Close the database connections."""
        self.app.close()

    async def queue(self, *names: str, train: str = "work", group: str | None = None) -> None:
        await self.app.queue_many(train, names, group=group)

    def hold(self, *names: str) -> None:
        """Keep these jobs from ending until they are released."""
        for name in names:
            self.site.hold_file(name).touch()

    def release(self, *names: str) -> None:
        for name in names:
            self.site.hold_file(name).unlink()

    def job_events(self, name: str | None = None) -> list[JobEvent]:
        """The events so far, in order, of one job or of all."""
        if not self.site.log.exists():
            return []
        fields = [line.split() for line in self.site.log.read_text(encoding="utf-8").splitlines()]
        lines = [JobEvent(event, int(run_id), job, int(pid)) for event, run_id, job, pid in fields]
        return [line for line in lines if name in {None, line.name}]

    async def records(self, name: str | None = None) -> list[Metadata]:
        """The records of one job or of all, oldest first."""
        store = await self.app.context.store.open()
        found = await store.ask(RUNS.load_list, RunFilter(), limit=ALL)
        return [run for run in reversed(found) if name in {None, run.input}]

    async def until(self, description: str, condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait for a condition; ContractBroken after 2 min."""
        began = looked = time.monotonic()
        while not await condition():
            now = time.monotonic()
            expect(f"{description}, within {TIMEOUT_SECONDS} s", is_so=now < began + TIMEOUT_SECONDS)
            await asyncio.sleep(max(0.02, 2 * (now - looked)))  # polling must not slow the engine down
            looked = time.monotonic()

    async def until_began(self, name: str, times: int = 1) -> None:
        async def has_begun() -> bool:
            return sum(line.event == "began" for line in self.job_events(name)) >= times

        await self.until(f"job {name!r} begins", has_begun)

    async def until_completed(self, *names: str) -> None:
        async def are_done() -> bool:
            done = {run.input for run in await self.records() if run.state is State.COMPLETED}
            return done.issuperset(names)

        await self.until(f"jobs {', '.join(names[:5])} complete", are_done)

    async def until_ended(self, name: str) -> Metadata:
        """Wait until the last run of this job has ended; returns its record."""
        found: list[Metadata] = []

        async def has_ended() -> bool:
            found[:] = await self.records(name)
            return bool(found) and found[-1].ended_at is not None

        await self.until(f"job {name!r} ends", has_ended)
        return found[-1]

    async def check_each_ran_once(self, names: Iterable[str]) -> None:
        """Check that each job has one completed run, and that no run was executed twice."""
        completed = [run for run in await self.records() if run.state is State.COMPLETED]
        began = Counter(line.metadata_id for line in self.job_events() if line.event == "began")
        expect("each job completes once", is_so=Counter(run.input for run in completed) == Counter(names))
        expect("no run is executed twice", is_so=max(began.values(), default=0) <= 1)
        expect("each completed run was executed", is_so={run.id for run in completed} <= began.keys())

    def most_at_once(self, prefix: str = "") -> int:
        """The highest number of jobs with this prefix that ran at the same time, by their own events."""
        running = most = 0
        for line in self.job_events():
            if line.name.startswith(prefix):
                running += 1 if line.event == "began" else -1
                most = max(most, running)
        return most


def expect(promise: str, *, is_so: bool) -> None:
    if not is_so:
        raise ContractBroken(f"contract broken: {promise}")
