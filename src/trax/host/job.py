"""One claimed run, from its stored input to its ending. Nothing it meets leaves as an exception."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trax.admin.finishing import Ended
from trax.errors import TraxError
from trax.host.hooks import call_hook, tell_ending
from trax.host.outcomes import ending_of, gives_up, kind_of
from trax.records.ended import EndKind
from trax.records.metadata import Ending
from trax.records.states import State
from trax.train import Cancelled, Outcome, Run, Train, entered

if TYPE_CHECKING:
    from trax.host.parts import Parts
    from trax.store import Store
    from trax.store.claim import Claimed
    from trax.train import Cancellation


@dataclass(frozen=True, slots=True)
class Finished:
    """A job whose run is over: what is to be written, and who is to be told once it is."""

    ended: Ended
    train: Train[Any, Any] | None = None
    outcome: Outcome[Any] | None = None


class JobRunner:
    """Runs claimed jobs under their own record."""

    def __init__(self, parts: Parts, store: Store, worker_id: int) -> None:
        self._parts = parts
        self._store = store
        self._worker_id = worker_id

    async def execute(self, job: Claimed, token: Cancellation) -> Finished:
        """Run it; how it ended, and what that means to its manifest, is the answer."""
        try:
            train = self._parts.trains.get(job.train)
            value = self._parts.parameters.of_input(train).decode(job.input or "null")
        except TraxError as poison:
            return Finished(self._poisoned(job, poison))
        run = Run(
            metadata_id=job.metadata_id,
            external_id=job.external_id,
            train=job.train,
            manifest=job.manifest,
            attempt=job.attempt,
            scheduled_for=job.scheduled_for,
            cancellation=token,
            activator=self._parts.activating,
        )
        with entered(run):
            await call_hook(self._store, train, "on_started", job.metadata_id)
            outcome = await _outcome(train, value, run)
        return Finished(self._ended(job, train, outcome), train, outcome)

    async def tell(self, finished: Finished) -> None:
        """Call the train's hook, once the ending is written."""
        if finished.train is not None and finished.outcome is not None:
            metadata_id = finished.ended.ending.metadata_id
            await tell_ending(self._store, finished.train, metadata_id, finished.outcome)

    def _ended(self, job: Claimed, train: Train[Any, Any], outcome: Outcome[Any]) -> Ended:
        ending = ending_of(job.metadata_id, outcome, train, self._parts.parameters)
        return Ended(
            ending=replace(ending, worker_id=self._worker_id),
            external_id=job.external_id,
            kind=kind_of(outcome),
            manifest_id=job.manifest_id,
            gives_up=gives_up(outcome, train),
        )

    def _poisoned(self, job: Claimed, poison: TraxError) -> Ended:
        """A train this server does not know, or an input its type refuses: no further try would help."""
        ending = Ending(
            metadata_id=job.metadata_id,
            worker_id=self._worker_id,
            state=State.FAILED,
            failure_exception=type(poison).__name__,
            failure_reason=str(poison),
        )
        return Ended(
            ending=ending,
            external_id=job.external_id,
            kind=EndKind.FAILURE,
            manifest_id=job.manifest_id,
            gives_up=True,
        )


async def _outcome(train: Train[Any, Any], value: Any, run: Run) -> Outcome[Any]:
    try:
        return await train.attempt(value, cancellation=run.cancellation, external_id=run.external_id)
    except asyncio.CancelledError:
        return Cancelled("its task was cancelled")
