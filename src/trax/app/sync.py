"""`app.sync`: run, queue, wait and trigger from blocking code."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from trax.app.queue import refuse_unique
from trax.errors import TraxError, explain_call

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta
    from typing import Unpack

    from trax.app.app import Trax
    from trax.app.queue import Enqueuer
    from trax.engine.enqueue import ManyKeywords, QueueKeywords
    from trax.records import Metadata, WorkQueueEntry
    from trax.train import Train
    from trax.worker.entry import QueuedEntry

In = TypeVar("In")
Out = TypeVar("Out")


class Sync:
    """The methods of the app for code without an event loop."""

    def __init__(self, app: Trax, enqueuer: Enqueuer) -> None:
        self._app = app
        self._enqueuer = enqueuer

    @explain_call("app.sync.run(train, input), where a train without input gets None")
    def run(self, train: Train[In, Out], value: In) -> Out:
        """Run a train in this process and record the run."""
        _refuse_inside_a_loop("run", "await app.run(…)")
        return asyncio.run(self._app.run(train, value))

    @explain_call("app.sync.queue(train, input), where a train without input gets None")
    def queue(self, train: Train[In, Any] | str, value: In, **keywords: Unpack[QueueKeywords]) -> QueuedEntry:
        """Enqueue a job."""
        return self._enqueuer.enqueue_blocking(train, [value], keywords)[0]

    def queue_many(
        self, train: Train[In, Any] | str, values: Iterable[In], **keywords: Unpack[ManyKeywords]
    ) -> list[QueuedEntry]:
        """Enqueue any number of jobs in one transaction."""
        return self._enqueuer.enqueue_blocking(train, values, refuse_unique(keywords))

    def wait(self, entry: WorkQueueEntry, timeout: float | timedelta | None = None) -> Metadata:
        """Wait until the job of an entry is over, in this process or another; return its last run.

        Raises WaitTimedOut, a TimeoutError, after `timeout` (the job continues), and EntryCancelled if the
        entry is withdrawn. No role of the app needs to run in this process.
        """
        _refuse_inside_a_loop("wait", "await entry.wait(…)")
        return asyncio.run(self._app.context.entry_waiter(entry, timeout))

    def trigger(self, external_id: str, *, delay: timedelta | None = None) -> QueuedEntry:
        """Enqueue an extra run of a manifest, now or after a delay, independent of its schedule."""
        return self._app.manifests.trigger_blocking(external_id, delay=delay)


def _refuse_inside_a_loop(method: str, instead: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise TraxError(f"app.sync.{method} would block the running event loop; use `{instead}`")
