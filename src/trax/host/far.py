"""Runs whose train is executed by a process without a database, while their records are kept here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from trax.host.recorded import RecordedRun
from trax.train import Cancellation, current, result_of

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from trax.host.parts import Parts
    from trax.train import Outcome, Run, Train
    from trax.work.messages import Desk

Out = TypeVar("Out")


class Far(Protocol):
    """Executes one run elsewhere. What the run says of itself meanwhile is told at the desk."""

    def attempt(self, train: Train[Any, Any], text: str, run: Run, desk: Desk) -> Awaitable[Outcome[Any]]: ...


@runtime_checkable
class Remote(Far, Protocol):
    """Where `app.run(…, on=remote)` runs a train: it may keep the record itself, or leave that to us."""

    @property
    def keeps_records(self) -> bool: ...

    def run(
        self, train: Train[Any, Any], text: str, parent_id: int | None, token: Cancellation
    ) -> Awaitable[Outcome[Any]]: ...


async def run_on(remote: Remote, parts: Parts, train: Train[Any, Out], value: Any) -> Out:
    """Run there and wait for it. The slots that limit `app.run` are held here, all the while."""
    if not remote.keeps_records:
        return await RecordedRun(parts, await parts.store.opened(), train, far=remote).of(value)
    text, parent = parts.parameters.of_input(train).encode(value), current()
    async with parts.limits.slot(train):
        token = parent.cancellation if parent else Cancellation()
        return result_of(await remote.run(train, text, parent.metadata_id if parent else None, token))
