"""An entry of the work queue that its caller can wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

from trax.errors import TraxError
from trax.records.work_queue_entry import WorkQueueEntry

if TYPE_CHECKING:
    from datetime import timedelta

    from trax.records import Metadata


class Waits(Protocol):
    """Gives the last run of an entry's job, once that is over."""

    async def __call__(self, entry: WorkQueueEntry, at_most: float | timedelta | None) -> Metadata: ...


class QueuedEntry(WorkQueueEntry):
    """The record of an entry, equal to any other record of it, which also knows how to wait."""

    __slots__ = ("_waits",)

    def awaited_by(self, waits: Waits) -> Self:
        """The same entry, once it is told how to wait: whoever makes it does that at once."""
        object.__setattr__(self, "_waits", waits)
        return self

    async def wait(self, timeout: float | timedelta | None = None) -> Metadata:  # noqa: ASYNC109 - promised
        """The last run of this job, once it is over: completed, cancelled, or given up after its retries.

        Raises TimeoutError after so many seconds (the job goes on all the same), and EntryCancelled if the
        entry is withdrawn. The retries of a manifest's run are entries of their own.
        """
        waits: Waits | None = getattr(self, "_waits", None)
        if waits is None:
            raise TraxError(
                f"this copy of entry {self.id} has left its app; ask app.work_queue.get({self.id})"
            )
        return await waits(self, timeout)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WorkQueueEntry) and self.as_fields() == other.as_fields()

    __hash__ = WorkQueueEntry.__hash__
