"""`QueuedEntry`: a work queue entry whose job can be awaited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

from trax.errors import TraxError
from trax.records.work_queue_entry import WorkQueueEntry

if TYPE_CHECKING:
    from datetime import timedelta

    from trax.records import Metadata


class WaitFunction(Protocol):
    """Waits until an entry's job is over; returns its last run."""

    async def __call__(self, entry: WorkQueueEntry, at_most: float | timedelta | None) -> Metadata: ...


class QueuedEntry(WorkQueueEntry):
    """A work queue entry with `wait`. It equals a plain `WorkQueueEntry` of the same fields."""

    __slots__ = ("_waits",)

    def with_wait_function(self, wait_function: WaitFunction) -> Self:
        """Set how to wait, and return the entry; its creator must call this at once."""
        object.__setattr__(self, "_waits", wait_function)
        return self

    async def wait(self, timeout: float | timedelta | None = None) -> Metadata:  # noqa: ASYNC109 - promised
        """Wait until the job is over (completed, cancelled, failed after its retries); return its last run.

        Raises TimeoutError after `timeout` (the job continues), and EntryCancelled if the entry is withdrawn.
        Retries of a manifest's run are separate entries.
        """
        waits: WaitFunction | None = getattr(self, "_waits", None)
        if waits is None:
            raise TraxError(
                f"entry {self.id}: this copy is detached from its app; use app.work_queue.get({self.id})"
            )
        return await waits(self, timeout)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WorkQueueEntry) and self.as_fields() == other.as_fields()

    __hash__ = WorkQueueEntry.__hash__
