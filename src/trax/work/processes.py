"""The processes of cpu trains: started when first needed, used again, replaced when a run must be stopped."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from trax.errors import ProcessDied, RunCancelled, RunInterrupted, RunTimedOut
from trax.train import Cancelled, Failed, Interrupted
from trax.train.cancellation import held
from trax.train.failure import describe
from trax.work.messages import Stop
from trax.work.process import CpuProcess

if TYPE_CHECKING:
    from trax.train import Cancellation, Outcome
    from trax.work.messages import Desk, Work

GRACE_SECONDS = 2.0
"""How long a run that was asked to stop may tidy up before its process is killed."""


class Processes:
    """So many processes at most. A run has one to itself, so that ending it harms no other."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0
        self._places = asyncio.Semaphore(most)
        self._idle: list[CpuProcess] = []
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="trax-cpu")

    @property
    def free(self) -> int:
        """How many runs could begin at once."""
        return max(0, self._most - self._taken)

    async def attempt(self, work: Work, token: Cancellation, desk: Desk) -> Outcome[Any]:
        """Run it in a process; what the run asks for meanwhile is done at the desk, in a thread."""
        self._taken += 1
        try:
            return await held(token, self._attempt(work, token, desk))
        except RunCancelled as error:
            return Cancelled(str(error), isinstance(error, RunTimedOut), error=error)
        except RunInterrupted as error:
            return Interrupted(str(error), error=error)
        except ProcessDied as error:
            names = {"train": work.reference.train, "external_id": work.facts["external_id"]}
            return Failed(error, describe(error, **names, junction=None))
        finally:
            self._taken -= 1

    async def close(self) -> None:
        """End the processes; nothing runs in them any more."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(asyncio.to_thread(process.close) for process in idle))
        self._threads.shutdown(wait=False)

    async def _attempt(self, work: Work, token: Cancellation, desk: Desk) -> Outcome[Any]:
        async with self._places:
            process = await self._process()
            try:
                return await self._conversation(process, work, token, desk)
            finally:
                if process.lives:
                    self._idle.append(process)
                else:
                    process.close()

    async def _process(self) -> CpuProcess:
        while self._idle:
            process = self._idle.pop()
            if process.lives:
                return process
            process.close()
        starting = asyncio.get_running_loop().run_in_executor(self._threads, CpuProcess)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._idle.append(await starting)
            raise

    async def _conversation(
        self, process: CpuProcess, work: Work, token: Cancellation, desk: Desk
    ) -> Outcome[Any]:
        context = copy_context()  # what the run logs over there is handled here, as the run's
        talk = asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: context.run(process.converse, work, desk)
        )
        try:
            return await asyncio.shield(talk)
        except asyncio.CancelledError:
            await self._stopped(process, talk, work, token)
            if talk.exception() is None and token.requested:
                return talk.result()  # it has tidied up, or was done
            raise

    async def _stopped(
        self, process: CpuProcess, talk: asyncio.Future[Any], work: Work, token: Cancellation
    ) -> None:
        """Ask the run to stop, and end its process when it does not."""
        try:
            with suppress(OSError):  # it has just died
                process.send(_stop(work, token))
            await asyncio.wait([talk], timeout=GRACE_SECONDS)
        finally:
            if not talk.done():
                process.kill()
            await asyncio.wait([talk])


def _stop(work: Work, token: Cancellation) -> Stop:
    interrupts = isinstance(token.error(), RunInterrupted)
    reason = token.reason or "the task around the run was cancelled"
    return Stop(work.metadata_id, reason, interrupts, token.timed_out)
