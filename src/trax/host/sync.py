"""`app.sync`: the same verbs for blocking code."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from trax.errors import TraxError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta
    from typing import Unpack

    from trax.host.app import Trax
    from trax.host.entry import QueuedEntry
    from trax.host.queueing import Queueing
    from trax.host.wishes import ManyKeywords, QueueKeywords
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

    def queue(self, train: Train[In, Any] | str, value: In, **how: Unpack[QueueKeywords]) -> QueuedEntry:
        """Ask for a run in the background."""
        return self._queueing.one_blocking(train, value, how)

    def queue_many(
        self, train: Train[In, Any] | str, values: Iterable[In], **how: Unpack[ManyKeywords]
    ) -> list[QueuedEntry]:
        """Ask for any number of runs in one transaction."""
        return self._queueing.many_blocking(train, values, how)

    def trigger(self, external_id: str, *, delay: timedelta | None = None) -> QueuedEntry:
        """Start a manifest now, or after a delay: an extra run, whatever the schedule says."""
        return self._app.manifests.trigger_blocking(external_id, delay=delay)


def _refuse_inside_a_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise TraxError("app.sync.run would block the running event loop; here it is `await app.run(…)`")
