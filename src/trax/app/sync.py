"""`app.sync`: run, queue and trigger from blocking code."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from trax.errors import TraxError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta
    from typing import Unpack

    from trax.app.app import Trax
    from trax.app.queue import Enqueuer
    from trax.engine.enqueue import ManyKeywords, QueueKeywords
    from trax.train import Train
    from trax.worker.entry import QueuedEntry

In = TypeVar("In")
Out = TypeVar("Out")


class Sync:
    """The methods of the app for code without an event loop."""

    def __init__(self, app: Trax, enqueuer: Enqueuer) -> None:
        self._app = app
        self._enqueuer = enqueuer

    def run(self, train: Train[In, Out], value: In) -> Out:
        """Run a train in this process and record the run."""
        _refuse_inside_a_loop()
        return asyncio.run(self._app.run(train, value))

    def queue(self, train: Train[In, Any] | str, value: In, **keywords: Unpack[QueueKeywords]) -> QueuedEntry:
        """Enqueue a job."""
        return self._enqueuer.enqueue_one_blocking(train, value, keywords)

    def queue_many(
        self, train: Train[In, Any] | str, values: Iterable[In], **keywords: Unpack[ManyKeywords]
    ) -> list[QueuedEntry]:
        """Enqueue any number of jobs in one transaction."""
        return self._enqueuer.enqueue_many_blocking(train, values, keywords)

    def trigger(self, external_id: str, *, delay: timedelta | None = None) -> QueuedEntry:
        """Start an extra run of a manifest now or after a delay, independent of its schedule."""
        return self._app.manifests.trigger_blocking(external_id, delay=delay)


def _refuse_inside_a_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise TraxError("app.sync.run would block the running event loop; use `await app.run(…)`")
