"""A run here and now, with its record: begin, run, finish, and the train's own hooks around it."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from trax.host.hooks import call_hook, tell_ending
from trax.host.outcomes import ending_of
from trax.records.external_id import new_external_id
from trax.records.metadata import NewRun
from trax.store import metadata
from trax.train import Cancellation, Cancelled, Run, current, entered, result_of

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from trax.host.parameters import Parameters
    from trax.records.metadata import Ending
    from trax.store import Connection, Store
    from trax.train import Outcome, Train

T = TypeVar("T")
Out = TypeVar("Out")


class RecordedRun(Generic[Out]):
    """One run of a train and the record it leaves."""

    def __init__(self, store: Store, train: Train[Any, Out], parameters: Parameters) -> None:
        self._store = store
        self._train = train
        self._parameters = parameters

    async def of(self, given: Any) -> Out:
        """Run the train; what it raises reaches the caller as it is, and the record tells the same."""
        codec = self._parameters.of_input(self._train)
        text = codec.encode(given)
        parent = current()
        new = NewRun(
            external_id=new_external_id(),
            train=self._train.name,
            input=self._parameters.saved_input(text),
            parent_id=parent.metadata_id if parent else None,
            timeout_seconds=_seconds(self._train),
            host=socket.gethostname(),
            exempt=self._train.options.exclude_from_max_active_jobs,
        )
        run = Run(
            metadata_id=await self._store.call(self._begin, new),
            external_id=new.external_id,
            train=new.train,
            parent_id=new.parent_id,
            cancellation=parent.cancellation if parent else Cancellation(),
        )
        with entered(run):
            await call_hook(self._store, self._train, "on_started", run.metadata_id)
            outcome = await self._outcome(run, codec.decode(text))
            return await self._end(run, outcome)

    async def _outcome(self, run: Run, value: Any) -> Outcome[Out]:
        try:
            return await self._train.attempt(
                value, cancellation=run.cancellation, external_id=run.external_id
            )
        except asyncio.CancelledError:
            await _unhindered(self._end(run, Cancelled("the caller was cancelled"), is_raised=False))
            raise

    async def _end(self, run: Run, outcome: Outcome[Out], *, is_raised: bool = True) -> Any:
        """Write the ending, tell the hooks, and give or raise what the caller gets."""
        ending = ending_of(run.metadata_id, outcome, self._train, self._parameters)
        await _unhindered(self._store.call(self._finish, ending))
        await tell_ending(self._store, self._train, run.metadata_id, outcome)
        return result_of(outcome) if is_raised else None

    def _begin(self, connection: Connection, new: NewRun) -> int:
        return metadata.begin(connection, new, now=self._store.now(connection))

    def _finish(self, connection: Connection, ending: Ending) -> None:
        metadata.finish(connection, [ending], now=self._store.now(connection))


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
