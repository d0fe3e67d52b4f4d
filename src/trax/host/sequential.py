"""Runs what is queued one after the other, in this task: no gate, no slots."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, NamedTuple

from trax.admin.endings import apply_endings
from trax.errors import TraxError
from trax.host.outcomes import ending_of, gives_up, kind_of
from trax.records.ended import EndKind, ManifestEnd
from trax.records.metadata import Ending
from trax.records.states import State
from trax.store import metadata
from trax.store.take import take
from trax.train import Cancellation, Run, entered

if TYPE_CHECKING:
    from trax.host.parts import Parts
    from trax.store import Connection, Store
    from trax.store.take import Taken


class Meaning(NamedTuple):
    """What a run's end means to its manifest."""

    manifest_id: int
    kind: EndKind
    gives_up: bool


class Sequential:
    """Takes entries in the order of the gate and runs each to its end."""

    def __init__(self, parts: Parts, store: Store) -> None:
        self._store = store
        self._trains = parts.trains
        self._parameters = parts.parameters
        self._settings = parts.settings
        self._activator = parts.activating

    async def work(self) -> int:
        """Run everything that may run now; returns how many runs that were."""
        done = 0
        while taken := await self._store.call(self._take):
            ending, end = await self._run(taken)
            await self._store.call(self._finish, ending, end)
            done += 1
        return done

    async def _run(self, taken: Taken) -> tuple[Ending, Meaning | None]:
        try:
            train = self._trains.get(taken.train)
            value = self._parameters.of_input(train).decode(taken.input or "null")
        except TraxError as poison:
            return _poisoned(taken, poison), _end(taken, EndKind.FAILURE, gives_up=True)
        run = Run(
            metadata_id=taken.metadata_id,
            external_id=taken.external_id,
            train=taken.train,
            manifest=taken.manifest,
            attempt=taken.attempt,
            scheduled_for=taken.scheduled_for,
            cancellation=Cancellation(),
            activator=self._activator,
        )
        with entered(run):
            outcome = await train.attempt(value, cancellation=run.cancellation, external_id=run.external_id)
        ending = ending_of(taken.metadata_id, outcome, train, self._parameters)
        return ending, _end(taken, kind_of(outcome), gives_up=gives_up(outcome, train))

    def _take(self, connection: Connection) -> Taken | None:
        return take(connection, host=socket.gethostname(), now=self._store.now(connection))

    def _finish(self, connection: Connection, ending: Ending, meaning: Meaning | None) -> None:
        """The record, its manifest and its dependents: one transaction."""
        now = self._store.now(connection)
        is_ours = metadata.finish(connection, [ending], now=now)
        if is_ours and meaning is not None:
            end = ManifestEnd(ended_at=now, **meaning._asdict())
            apply_endings(connection, [end], self._settings, now=now)


def _end(taken: Taken, kind: EndKind, *, gives_up: bool) -> Meaning | None:
    return None if taken.manifest_id is None else Meaning(taken.manifest_id, kind, gives_up)


def _poisoned(taken: Taken, poison: TraxError) -> Ending:
    return Ending(
        metadata_id=taken.metadata_id,
        worker_id=None,
        state=State.FAILED,
        failure_exception=type(poison).__name__,
        failure_reason=str(poison),
    )
