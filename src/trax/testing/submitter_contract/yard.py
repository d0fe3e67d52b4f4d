"""The near side of a scenario, and what can be seen of both."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from trax.host.duties import dispatch_now
from trax.records.filters import RunFilter
from trax.records.states import State
from trax.store.run_pages import RUNS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

    from trax.dispatch.submit import Submitter
    from trax.records.metadata import Metadata
    from trax.testing.submitter_contract.engine import Engine
    from trax.testing.submitter_contract.site import Site

PATIENCE_SECONDS: Final = 120
ALL: Final = 100_000


class ContractBroken(AssertionError):
    """A promise that this engine does not keep."""


class Noted(NamedTuple):
    """One line of what the jobs say: `began` or `ended`, whose record, which job, in which process."""

    event: str
    metadata_id: int
    name: str
    pid: int


class Yard:
    """One near side, whose runs all go to the engine, and the jobs at its far side."""

    def __init__(self, engine: Engine, site: Site) -> None:
        self.engine = engine
        self.site = site
        self.app = site.app()

    @asynccontextmanager
    async def near(
        self, wrap: Callable[[Submitter], Submitter] = lambda submitter: submitter
    ) -> AsyncGenerator[Submitter]:
        """The scheduler runs, within the block, and hands everything to the engine."""
        self.app.submitters.default = submitter = wrap(self.engine.submitter(self.app))
        await self.app.start("scheduler")
        try:
            yield submitter
        finally:
            await self.app.stop()

    @asynccontextmanager
    async def far(self) -> AsyncGenerator[None]:
        """The far side runs when the block begins, and is gone after it."""
        await self.engine.start(self.site)
        try:
            yield
        finally:
            await self.engine.stop()

    async def let_in(self) -> None:
        """Let queued jobs through the gate, and hand nothing over: as if the server died right then."""
        self.app.submitters.default = self.engine.submitter(self.app)
        store = await self.app.parts.store.opened()
        await store.call(dispatch_now, store, self.app.parts)
        self.close()
        self.app = self.site.app()

    def close(self) -> None:
        """Let go of the database."""
        self.app.close()

    async def queue(self, *names: str, train: str = "work", group: str | None = None) -> None:
        await self.app.queue_many(train, names, group=group)

    def hold(self, *names: str) -> None:
        """Keep these jobs from ending until they are released."""
        for name in names:
            self.site.held(name).touch()

    def release(self, *names: str) -> None:
        for name in names:
            self.site.held(name).unlink()

    def noted(self, name: str | None = None) -> list[Noted]:
        """What the jobs have said so far, in order; one of them, or all."""
        if not self.site.log.exists():
            return []
        words = [line.split() for line in self.site.log.read_text(encoding="utf-8").splitlines()]
        lines = [Noted(event, int(one), job, int(pid)) for event, one, job, pid in words]
        return [line for line in lines if name in {None, line.name}]

    async def records(self, name: str | None = None) -> list[Metadata]:
        """The records of one job, or of all, the oldest first."""
        store = await self.app.parts.store.opened()
        found = await store.ask(RUNS.listed, RunFilter(), limit=ALL)
        return [one for one in reversed(found) if name in {None, one.input}]

    async def until(self, what: str, condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait for something that is to come; never for a length of time."""
        began = looked = time.monotonic()
        while not await condition():
            now = time.monotonic()
            expect(f"{what}, within {PATIENCE_SECONDS} s", is_so=now < began + PATIENCE_SECONDS)
            await asyncio.sleep(
                max(0.02, 2 * (now - looked))
            )  # looking must not keep the others from working
            looked = time.monotonic()

    async def until_began(self, name: str, times: int = 1) -> None:
        async def has_begun() -> bool:
            return sum(line.event == "began" for line in self.noted(name)) >= times

        await self.until(f"job {name!r} begins", has_begun)

    async def until_completed(self, *names: str) -> None:
        async def are_done() -> bool:
            done = {one.input for one in await self.records() if one.state is State.COMPLETED}
            return done.issuperset(names)

        await self.until(f"jobs {', '.join(names[:5])} complete", are_done)

    async def until_ended(self, name: str) -> Metadata:
        """Wait until the last record of this job has ended; returns it."""
        found: list[Metadata] = []

        async def has_ended() -> bool:
            found[:] = await self.records(name)
            return bool(found) and found[-1].ended_at is not None

        await self.until(f"job {name!r} ends", has_ended)
        return found[-1]

    async def nothing_is_lost_or_doubled(self, names: Iterable[str]) -> None:
        """Each job has one completed record, and no record was executed twice."""
        completed = [one for one in await self.records() if one.state is State.COMPLETED]
        began = Counter(line.metadata_id for line in self.noted() if line.event == "began")
        expect("each job completes once", is_so=Counter(one.input for one in completed) == Counter(names))
        expect("no record is executed twice", is_so=max(began.values(), default=0) <= 1)
        expect("what completed was executed", is_so={one.id for one in completed} <= began.keys())

    def most_at_once(self, starting: str = "") -> int:
        """How many jobs, of those called so, ever ran side by side, as they themselves have noted it."""
        running = most = 0
        for line in self.noted():
            if line.name.startswith(starting):
                running += 1 if line.event == "began" else -1
                most = max(most, running)
        return most


def expect(promise: str, *, is_so: bool) -> None:
    if not is_so:
        raise ContractBroken(f"not kept: {promise}")
