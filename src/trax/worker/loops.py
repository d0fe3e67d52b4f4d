"""The background loops of a worker: claim runs, write their results, send heartbeats."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from trax.events import Topic
from trax.store.announce import announce
from trax.store.queue import work_queue
from trax.worker.loop import Loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from trax.store import Connection, Store
    from trax.worker.parts import Parts
    from trax.worker.worker import Worker


def claimer(parts: Parts, worker: Worker) -> Loop:
    async def turn() -> None:
        await worker.claim()

    return Loop("claimer", turn, poll_seconds=partial(interval_seconds, parts, "local_polling"))


def finisher(
    parts: Parts,
    store: Store,
    worker: Worker,
    *,
    leave_to_dispatcher: Callable[[], bool] = lambda: False,
    wake_dispatcher: Callable[[], bool] = lambda: False,
) -> Loop:
    """Writes results, unless the dispatcher of this process does it (`leave_to_dispatcher`).

    `wake_dispatcher` wakes the dispatcher of this process; False if there is none.
    """

    async def turn() -> None:
        if leave_to_dispatcher() or not await worker.flush():
            return
        parts.events.emit(Topic.FINISHED)
        if not wake_dispatcher():
            parts.events.emit(Topic.PENDING)
            await store.call(announce_capacity)

    return Loop("finisher", turn, poll_seconds=partial(interval_seconds, parts, "local_polling"))


def heartbeat(parts: Parts, worker: Worker) -> Loop:
    poll = partial(interval_seconds, parts, "heartbeat")
    return Loop("heartbeat", worker.send_heartbeat, poll_seconds=poll, first_after=poll())  # its row is new


def announce_capacity(connection: Connection) -> None:
    """Announce free capacity to other processes, if entries are ready.

    Called after the results are committed: an entry written later than this check finds the capacity free.
    """
    if work_queue.is_any_ready(connection):
        announce(connection, Topic.WORK_QUEUE)


def interval_seconds(parts: Parts, setting: str) -> float:
    """The current value of an interval setting: an operator may change it while the loop runs."""
    interval: Any = getattr(parts.settings, f"{setting}_interval")
    return interval.total_seconds()
