"""Two engines as simple as they can be: a folder of letters, and a far side here or in another process."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.support import reference_worker
from tests.support.preloaded_engine import PreloadedEngine

from trax.events import Topic
from trax.remote.receiver import Receiver
from trax.worker import loop as worker_loops

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trax import Submission, Trax
    from trax.testing.submitter_contract import Workspace


class Letters:
    """A durable queue: a file for each run."""

    name = "letters"
    batch_size = 20

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def submit(self, batch: Sequence[Submission]) -> None:
        for run in batch:
            (self._folder / str(run.metadata_id)).touch()


class LetterEngine:
    """What the two have in common."""

    def __init__(self, folder: Path) -> None:
        self._mail = folder / "mail"
        self._mail.mkdir()

    def submitter(self, app: Trax) -> Letters:
        del app
        return Letters(self._mail)


class Elsewhere(LetterEngine, PreloadedEngine):
    """The far side is a process."""

    async def start(self, site: Workspace) -> None:
        await self.launch("-m", reference_worker.__name__, site=site)


class Here(LetterEngine):
    """The far side is a receiver in this process, which can be struck dead."""

    _far: Struck | None = None

    async def start(self, site: Workspace) -> None:
        self._far = await Struck.started(site, self._mail)

    async def stop(self) -> None:
        far, self._far = self._far, None
        if far is not None:
            await far.end()

    async def kill(self) -> None:
        far, self._far = self._far, None
        if far is not None:
            await far.strike()


class Struck:
    """What `app.receiving()` makes, taken apart: it may end without a word to anybody."""

    def __init__(self, app: Trax, receiver: Receiver, mail: Path, finishing: worker_loops.Loop) -> None:
        self._app = app
        self._receiver = receiver
        self._loops = [finishing, worker_loops.heartbeat(app.context, receiver)]
        self._forget = app.context.events.listen(Topic.ENDED, finishing.wake)
        self._reading = asyncio.create_task(self._read(mail))
        self._tasks = [asyncio.create_task(loop.run()) for loop in self._loops]

    @classmethod
    async def started(cls, site: Workspace, mail: Path) -> Struck:
        app = site.app()
        store = await app.context.store.open()
        receiver = await Receiver.start(app.context, store, 20)
        return cls(app, receiver, mail, worker_loops.finisher(app.context, store, receiver))

    async def end(self) -> None:
        await self._no_more_letters()
        await self._receiver.drain(5)
        for loop in self._loops:
            loop.stop()
        await asyncio.gather(*self._tasks)
        await self._receiver.unregister()
        self._gone()

    async def strike(self) -> None:
        """Nobody beats, nothing is written: what it ran is left in progress, as by a process that died."""
        await self._no_more_letters()
        runs = [run.task for run in self._receiver._pool.runs if run.task]
        for task in (*self._tasks, *runs):
            task.cancel()
        await asyncio.gather(*self._tasks, *runs, return_exceptions=True)
        self._receiver._watch.stop()
        self._receiver._pool.close()
        self._gone()

    def _gone(self) -> None:
        self._forget()
        self._app.close()

    async def _no_more_letters(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self, mail: Path) -> None:
        while True:
            await reference_worker.take_up_all(self._receiver, mail)
            await asyncio.sleep(0.01)
