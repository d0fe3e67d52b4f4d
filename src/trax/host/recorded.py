"""A run here and now, with its record: begin, run, finish, and the hooks around it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from itertools import chain, repeat
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from trax.host.acting import note
from trax.host.hooks import Told
from trax.host.job import logged
from trax.host.loop import PAUSES
from trax.host.outcomes import ending_of, hide_in_outcome, unwritable
from trax.host.parameters import encrypted_if_possible
from trax.records.external_id import new_external_id
from trax.records.metadata import NewRun
from trax.store import metadata
from trax.store.faults import Fault, fault_of
from trax.train import Cancellation, Cancelled, Run, current, entered, result_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine

    from trax.host.far import Far
    from trax.host.notebook import LastWords
    from trax.host.parts import Parts
    from trax.host.progress import RunProgress
    from trax.host.telemetry.spans import RunSpan
    from trax.records.metadata import Ending
    from trax.store import Connection, Store
    from trax.train import Outcome, Train
    from trax.train.journey import Observer

logger = logging.getLogger(__name__)

T = TypeVar("T")
Out = TypeVar("Out")


class Caller(NamedTuple):
    """Who asked for a run from another process: the run it is part of, if any, and what stops it."""

    metadata_id: int | None
    cancellation: Cancellation


class RecordedRun(Generic[Out]):
    """One run of a train and the record it leaves."""

    def __init__(
        self,
        parts: Parts,
        store: Store,
        train: Train[Any, Out],
        *,
        far: Far | None = None,
        caller: Caller | None = None,
    ) -> None:
        self._parts = parts
        self._store = store
        self._train = train
        self._far = far
        self._caller = caller
        self.metadata_id: int | None = None
        """Its record, as soon as there is one."""
        self._worker_id: int | None = None
        self._span: RunSpan | None = None
        self._began = 0.0

    async def of(self, given: Any) -> Out:
        """Run the train; what it raises reaches the caller as it is, and the record tells the same."""
        codec = self._parts.parameters.of_input(self._train)
        # A far side reads the text, a record only keeps it.
        is_kept = codec.holds_secrets and self._far is None
        text = codec.encode(given, secrets=encrypted_if_possible() if is_kept else "sealed")
        async with self._parts.limits.slot(self._train):
            run = await self._begun(text)
            self._began = perf_counter()
            progress = self._parts.notebook.open(
                self._store, run.metadata_id, run.external_id, run.cancellation, is_held=False
            )
            told = Told(self._train, run.metadata_id, text)
            telemetry = self._parts.telemetry.now
            self._span = None if telemetry is None else telemetry.begun(run)
            try:
                with entered(replace(run, reporter=progress.tell)) as run:
                    await self._parts.hooks.started(self._store, told)
                    value = codec.copy(given) if is_kept else codec.decode(text)
                    run.secret_words = codec.secret_words(value)
                    attempt = (
                        self._attempt(value, progress)
                        if self._far is None
                        else self._there(run, text, progress)
                    )
                    outcome = await self._outcome(told, progress, attempt)
                    outcome = hide_in_outcome(outcome, run.secret_words)
                    return await self._end(told, progress, outcome)
            finally:
                self._parts.notebook.close(progress)
                if self._span is not None:
                    self._span.leave()
                    self._span.end(None)

    async def _begun(self, text: str) -> Run:
        """Its record and what its junctions see: a run inside another speaks for that one's manifest, too."""
        around = None if self._caller else current()
        parent = self._caller or around
        presence = self._parts.presence
        self._worker_id = presence.caller_id or await asyncio.to_thread(presence.caller, self._store)
        new = NewRun(
            external_id=new_external_id(),
            train=self._train.name,
            input=self._parts.parameters.saved_input(text),
            parent_id=parent.metadata_id if parent else None,
            timeout_seconds=_seconds(self._train),
            host=self._parts.identity.host,
            worker_id=self._worker_id,
            exempt=self._train.options.exclude_from_max_active_jobs,
        )
        self.metadata_id = await self._store.call(self._begin, new)
        return Run(
            metadata_id=self.metadata_id,
            external_id=new.external_id,
            train=new.train,
            manifest=around.manifest if around else None,
            parent_id=new.parent_id,
            cancellation=parent.cancellation if parent else Cancellation(),
            activator=around.activator if around else None,
        )

    def _attempt(self, value: Any, progress: RunProgress) -> Awaitable[Outcome[Out]]:
        return self._train.attempt(
            value,
            cancellation=progress.token,
            external_id=progress.external_id,
            on_junction=self._observer(progress),
        )

    def _there(self, run: Run, text: str, progress: RunProgress) -> Awaitable[Outcome[Out]]:
        assert self._far is not None  # noqa: S101 - asked before
        entered = self._observer(progress) or progress.enter
        desk = {"progress": progress.tell, "junction": entered, "log": logged}
        return self._far.attempt(self._train, text, run, desk)

    def _observer(self, progress: RunProgress) -> Observer | None:
        observer = progress.enter if self._parts.settings.junction_progress else None
        if self._span is None:
            return observer
        return self._span.observing(self._train, observer, progress.token, is_here=self._far is None)

    async def _outcome(
        self, told: Told, progress: RunProgress, attempt: Awaitable[Outcome[Out]]
    ) -> Outcome[Out]:
        try:
            return await attempt
        except asyncio.CancelledError:
            stopped = Cancelled("the caller was cancelled")
            await _unhindered(self._end(told, progress, stopped, is_raised=False))
            raise

    async def _end(
        self, told: Told, progress: RunProgress, outcome: Outcome[Out], *, is_raised: bool = True
    ) -> Any:
        """Write the ending, tell the hooks, and give or raise what the caller gets."""
        junctions = self._parts.notebook.end(progress)
        self._parts.odometer.ran(self._train.name, perf_counter() - self._began)
        if self._span is not None:
            self._span.stop(outcome)
        ending = ending_of(
            outcome,
            self._train,
            self._parts.parameters,
            metadata_id=told.metadata_id,
            worker_id=self._worker_id,
            junctions=junctions,
        )
        await _unhindered(self._written(ending))
        if self._parts.telemetry.now is not None:
            await self._parts.telemetry.now.ended(self._store, {told.metadata_id: self._span})
        await self._parts.hooks.ended(self._store, told, outcome)
        return result_of(outcome) if is_raised else None

    async def _written(self, ending: Ending) -> None:
        """Write the ending. While that cannot be, the caller waits: as long as a worker may be silent.

        In the place of one whose content is refused a failure is written, which the caller hears of as well.
        """
        until = monotonic() + self._parts.settings.worker_lost_after.total_seconds()
        for pause in chain(PAUSES, repeat(PAUSES[-1])):
            try:
                await self._write(ending)
            except Exception as error:
                if fault_of(error) is Fault.CONTENT:
                    await self._write(unwritable(ending, error))
                    raise
                if monotonic() + pause > until:
                    raise
                text = "run %s: its end could not be written, trying again in %s s: %s"
                extra = {"metadata_id": ending.metadata_id, "train": self._train.name}
                logger.warning(text, ending.metadata_id, pause, error, extra=extra)
            else:
                return
            await asyncio.sleep(pause)

    async def _write(self, ending: Ending) -> None:
        with self._parts.notebook.last_words([ending.metadata_id]) as words:
            await self._store.call(self._finish, ending, words)

    def _begin(self, connection: Connection, new: NewRun) -> int:
        now = self._store.now(connection)
        metadata_id = metadata.begin(connection, new, now=now)
        note(connection, "trains.run", "train", [new.train], now=now, after={"execution_id": metadata_id})
        return metadata_id

    def _finish(self, connection: Connection, ending: Ending, words: LastWords | None) -> None:
        now = self._store.now(connection)
        if words is not None:
            words.write(connection, now=now)
        if not metadata.finish(connection, [ending], now=now):
            logger.warning(
                "run %s ended as %s too late: worker %s had missed its heartbeat, and the run was ended",
                ending.metadata_id,
                ending.state,
                ending.worker_id,
                extra={"metadata_id": ending.metadata_id, "train": self._train.name},
            )


def _seconds(train: Train[Any, Any]) -> float | None:
    return train.options.timeout.total_seconds() if train.options.timeout else None


async def _unhindered(work: Coroutine[Any, Any, T]) -> T:
    """Bring this to its end even when the caller is cancelled meanwhile: an ending must not be lost."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
