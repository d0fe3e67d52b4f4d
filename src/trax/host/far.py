"""Execute trains in remote processes without a database; the records are kept here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from trax.host.recorded import RecordedRun
from trax.train import Cancellation, current, result_of

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from trax.host.parts import Parts
    from trax.train import Outcome, Run, Train
    from trax.work.messages import RequestHandlers

Out = TypeVar("Out")


class RemoteExecutor(Protocol):
    """Executes one run remotely. Its progress, log lines and activations arrive through the desk."""

    def attempt(
        self, train: Train[Any, Any], text: str, run: Run, desk: RequestHandlers
    ) -> Awaitable[Outcome[Any]]: ...


@runtime_checkable
class Remote(RemoteExecutor, Protocol):
    """The target of `app.run(…, on=remote)`: it keeps the record itself, or the caller's process does."""

    @property
    def keeps_records(self) -> bool: ...

    def run(
        self, train: Train[Any, Any], text: str, parent_id: int | None, token: Cancellation
    ) -> Awaitable[Outcome[Any]]: ...


async def run_on(remote: Remote, parts: Parts, train: Train[Any, Out], value: Any) -> Out:
    """Run the train remotely and wait. It occupies the slots that limit `app.run` in this process."""
    if not remote.keeps_records:
        return await RecordedRun(parts, await parts.store.open(), train, executor=remote).run(value)
    text, parent = parts.parameters.input_codec(train).encode(value), current()
    async with parts.limits.slot(train):
        token = parent.cancellation if parent else Cancellation()
        return result_of(await remote.run(train, text, parent.metadata_id if parent else None, token))
