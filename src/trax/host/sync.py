"""`app.sync`: the same verbs for blocking code."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from trax.errors import TraxError

if TYPE_CHECKING:
    from typing import Unpack

    from trax.host.app import Trax
    from trax.host.queueing import Queueing, QueueKeywords
    from trax.records import WorkQueueEntry
    from trax.train import Train

In = TypeVar("In")
Out = TypeVar("Out")


class Sync:
    """The verbs of the app for code without an event loop."""

    def __init__(self, app: Trax, queueing: Queueing) -> None:
        self._app = app
        self._queueing = queueing

    def run(self, train: Train[In, Out], value: In) -> Out:
        """Run here and now, recorded."""
        _refuse_inside_a_loop()
        return asyncio.run(self._app.run(train, value))

    def queue(self, train: Train[In, Any], value: In, **how: Unpack[QueueKeywords]) -> WorkQueueEntry:
        """Write one entry to the work queue."""
        return self._queueing.add_blocking(train, [value], **how)[0]


def _refuse_inside_a_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise TraxError("app.sync.run would block the running event loop; here it is `await app.run(…)`")
