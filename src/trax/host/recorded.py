"""A run here and now, with its record: begin, run, finish, and the hooks around it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from trax.host.hooks import Told
from trax.host.outcomes import ending_of
from trax.records.external_id import new_external_id
from trax.records.metadata import NewRun
from trax.store import metadata
from trax.train import Cancellation, Cancelled, Run, current, entered, result_of

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from trax.host.notebook import LastWords
    from trax.host.parts import Parts
    from trax.host.progress import RunProgress
    from trax.records.metadata import Ending
    from trax.store import Connection, Store
    from trax.train import Outcome, Train

T = TypeVar("T")
Out = TypeVar("Out")


class RecordedRun(Generic[Out]):
    """One run of a train and the record it leaves."""

    def __init__(self, parts: Parts, store: Store, train: Train[Any, Out]) -> None:
        self._parts = parts
        self._store = store
        self._train = train

    async def of(self, given: Any) -> Out:
        """Run the train; what it raises reaches the caller as it is, and the record tells the same."""
        codec = self._parts.parameters.of_input(self._train)
        text = codec.encode(given)
        async with self._parts.limits.slot(self._train):
            run = await self._begun(text)
            progress = self._parts.notebook.open(
                self._store, run.metadata_id, run.external_id, run.cancellation, is_held=False
            )
            told = Told(self._train, run.metadata_id, text)
            try:
                with entered(replace(run, reporter=progress.tell)):
                    await self._parts.hooks.started(self._store, told)
                    outcome = await self._outcome(told, progress, codec.decode(text))
                    return await self._end(told, progress, outcome)
            finally:
                self._parts.notebook.close(progress)

    async def _begun(self, text: str) -> Run:
        parent = current()
        new = NewRun(
            external_id=new_external_id(),
            train=self._train.name,
            input=self._parts.parameters.saved_input(text),
            parent_id=parent.metadata_id if parent else None,
            timeout_seconds=_seconds(self._train),
            host=self._parts.identity.host,
            exempt=self._train.options.exclude_from_max_active_jobs,
        )
        return Run(
            metadata_id=await self._store.call(self._begin, new),
            external_id=new.external_id,
            train=new.train,
            parent_id=new.parent_id,
            cancellation=parent.cancellation if parent else Cancellation(),
        )

    async def _outcome(self, told: Told, progress: RunProgress, value: Any) -> Outcome[Out]:
        try:
            return await self._train.attempt(
                value,
                cancellation=progress.token,
                external_id=progress.external_id,
                on_junction=progress.enter if self._parts.settings.junction_progress else None,
            )
        except asyncio.CancelledError:
            stopped = Cancelled("the caller was cancelled")
            await _unhindered(self._end(told, progress, stopped, is_raised=False))
            raise

    async def _end(
        self, told: Told, progress: RunProgress, outcome: Outcome[Out], *, is_raised: bool = True
    ) -> Any:
        """Write the ending, tell the hooks, and give or raise what the caller gets."""
        junctions = self._parts.notebook.end(progress)
        ending = ending_of(outcome, self._train, self._parts.parameters, metadata_id=told.metadata_id)
        ending = replace(ending, junctions=junctions)
        await _unhindered(self._written(ending))
        await self._parts.hooks.ended(self._store, told, outcome)
        return result_of(outcome) if is_raised else None

    async def _written(self, ending: Ending) -> None:
        with self._parts.notebook.last_words([ending.metadata_id]) as words:
            await self._store.call(self._finish, ending, words)

    def _begin(self, connection: Connection, new: NewRun) -> int:
        return metadata.begin(connection, new, now=self._store.now(connection))

    def _finish(self, connection: Connection, ending: Ending, words: LastWords | None) -> None:
        now = self._store.now(connection)
        if words is not None:
            words.write(connection, now=now)
        metadata.finish(connection, [ending], now=now)


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
