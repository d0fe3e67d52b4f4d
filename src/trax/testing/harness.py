"""The same engine, turn by turn, with a clock that only moves when told."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from trax.admin.dead_letter_cleanup import clean_dead_letters
from trax.admin.manifest_manager import Turn
from trax.admin.parking import Fleets
from trax.dispatch.fleet import Fleet, Takes
from trax.dispatch.submit import opened
from trax.errors import TraxError, did_you_mean
from trax.host.duties import add_up, clean_metadata_now, dispatch_now, manage_now
from trax.host.handing_over import HandingOver
from trax.host.startup import start
from trax.host.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from trax.admin.job_dispatcher import Dispatched
    from trax.admin.manifest_manager import Managed
    from trax.admin.metadata_cleanup import Cleaned
    from trax.host.app import Trax
    from trax.records.worker import Watch


class Harness:
    """Opens an app's store and seeds it, starts no loop, and runs each duty when asked.

    Time stands still until `advance` moves it, also for the database's own records.
    """

    def __init__(self, app: Trax, now: datetime | None = None) -> None:
        self.app = app
        self.now = now or datetime(2027, 1, 1, tzinfo=UTC)
        self.watch: Watch | None = None
        """Since when this server could beat; None: always, so that whoever is silent is found lost."""
        self._fleets = Fleets(self._own_fleet)
        self._turns = 0
        self._workers: list[Worker] = []

    async def __aenter__(self) -> Self:
        parts = self.app.parts
        parts.store.clock = lambda: self.now
        parts.notebook.by_hand = parts.presence.by_hand = True
        self._store = await parts.store.opened()
        try:
            await self.seed()
        except BaseException:
            self.app.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self.app.close()

    async def seed(self) -> None:
        """What a server does when it starts: recover, retire, seed. Call it again for a restart."""
        parts = self.app.parts
        self.app.submitters.check(self.app.trains)
        settings = await self._store.ask(parts.live.refresh)
        timetable = parts.declarations.checked()
        await start(self._store, timetable, settings, app=parts.name, watch=self.watch)

    async def advance(self, **units: float) -> None:
        """Move the clock, nothing else: `advance(minutes=5)`."""
        self.now += timedelta(**units)

    async def cycle(self, duty: str) -> Any:
        """One cycle of one duty; gives what it did."""
        duties: Mapping[str, Callable[[], Awaitable[Any]]] = {
            "manifest_manager": self._manage,
            "job_dispatcher": self._dispatch,
            "hand_over": self._hand_over,
            "dead_letter_cleanup": self._clean_dead_letters,
            "metadata_cleanup": self._clean_metadata,
            "tally": self._add_up,
            "notebook": self._write_notes,
        }
        if duty not in duties:
            raise TraxError(f"there is no duty {duty!r}{did_you_mean(duty, duties)}")
        return await duties[duty]()

    async def work(self) -> int:
        """Claim and run everything pending, one after the other; returns how many runs that were."""
        worker = await Worker.started(self.app.parts, self._store, slots=1)
        self._workers.append(worker)
        try:
            return await worker.run_all()
        finally:
            self._workers.remove(worker)
            await worker.leave()

    async def run_until_idle(self) -> None:
        """Manager, dispatcher, submitters and workers in turn, until nothing changes at this moment."""
        while True:
            managed = await self._manage()
            dispatched = await self._dispatch()
            worked = await self._hand_over() + await self.work()
            if not (worked or dispatched.changed or (managed and (managed.changed or managed.more))):
                return

    async def _manage(self) -> Managed | None:
        for worker in self._workers:
            await worker.beat()  # a run that moves the clock itself has not lost its worker
        await self._store.call(self.app.parts.presence.beat, self.now)
        turn, self._turns = Turn(self._turns, self.watch, self._fleets), self._turns + 1
        return await self._store.call(manage_now, self._store, self.app.parts, turn)

    async def _dispatch(self) -> Dispatched:
        return await self._store.call(dispatch_now, self._store, self.app.parts, fleets=self._fleets)

    def _own_fleet(self) -> Fleet:
        """Its workers are only there while they work; the gate counts on them all the time."""
        parts = self.app.parts
        return Fleet(workers=(Takes(parts.trains.names_and_aliases),)).joined_by(parts.own_routes())

    async def _hand_over(self) -> int:
        """Call every submitter for all that waits for it; returns how many runs that were."""
        handed = 0
        for submitter in self.app.submitters:
            handing = HandingOver(self.app.parts, self._store, submitter)
            async with opened(submitter, self.app.receiving):
                while taken := await handing.turn():
                    handed += taken
                    await handing.drain()
        return handed

    async def _clean_dead_letters(self) -> int:
        settings = await self._store.ask(self.app.parts.live.refresh)
        return await self._store.call(clean_dead_letters, self._store, settings)

    async def _clean_metadata(self) -> list[Cleaned]:
        """What each batch deleted: one after the other, until one finds less than it may."""
        batches: list[Cleaned] = []
        while not batches or batches[-1].more:
            batches.append(await self._store.call(clean_metadata_now, self._store, self.app.parts))
        return [batch for batch in batches if batch.deleted]

    async def _add_up(self) -> None:
        """All that has ended and is over for good, step by step."""
        while await add_up(self._store):
            pass

    async def _write_notes(self) -> None:
        """Write the log lines and the progress of the runs that go on."""
        await asyncio.to_thread(self.app.parts.notebook.write)
