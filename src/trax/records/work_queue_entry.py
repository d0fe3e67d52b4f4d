"""Entries of the work queue, and their external ids, which need no database."""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self

from trax.errors import TraxError
from trax.records.states import Origin, QueueStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from trax.records.metadata import Metadata

RANDOM_BYTES = 10

POOL_SIZE = 256

PARKING_SEPARATOR = "\n"
"""Separates train and group in the key of a parked entry; names contain no line break."""

_random_pool: deque[str] = deque()

os.register_at_fork(after_in_child=_random_pool.clear)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkQueueEntry:
    """One job in the work queue."""

    id: int
    """Its id."""
    external_id: str
    """The external id of the job, shared with its runs."""
    train: str
    """The name of the train."""
    status: QueueStatus
    """`queued`, then `dispatched` or `cancelled`."""
    origin: Origin
    """Why it was queued."""
    priority: int = 0
    """From 0 to 31; a higher priority goes first."""
    manifest: str | None = None
    """The external id of its manifest, if it has one."""
    group: str | None = None
    """The name of its group, if it has one."""
    input: Any = None
    """The input of the job."""
    metadata_id: int | None = None
    """The id of the run it was dispatched as."""
    scheduled_at: datetime | None = None
    """It does not run before this time."""
    created_at: datetime
    """When it was queued."""
    dispatched_at: datetime | None = None
    """When it was dispatched."""
    dispatch_attempts: int = 0
    """How often the hand-over to a submitter has failed."""
    dead_letter_id: int | None = None
    """The dead letter it was requeued from."""
    parked_at: datetime | None = None
    """When it was parked because no live worker accepts its train or its group."""

    def as_fields(self) -> dict[str, Any]:
        """The field values by name, to build an instance of a subclass."""
        return {each.name: getattr(self, each.name) for each in fields(WorkQueueEntry)}


DEFAULTS: Final = {each.name: each.default for each in fields(WorkQueueEntry)}


class WaitFunction(Protocol):
    """Waits until an entry's job is over; returns its last run."""

    async def __call__(self, entry: WorkQueueEntry, at_most: float | timedelta | None) -> Metadata: ...


class EntryBatch(NamedTuple):
    """What the entries of one call share: fields other than the defaults, and what their methods need."""

    fields: dict[str, Any]
    parse_input: Callable[[str], Any]
    wait_function: WaitFunction


class QueuedEntry(WorkQueueEntry):
    """A work queue entry with `wait`. It equals a plain `WorkQueueEntry` of the same fields.

    A call may write thousands of them, and few are read. So a field of `build_all` is set when it is first
    read: `_source` has the batch, the id, the external id, and the input as JSON text.
    """

    __slots__ = ("_source", "_waits")

    _source: tuple[EntryBatch, int, str, str]
    _waits: WaitFunction

    @classmethod
    def build_all(cls, batch: EntryBatch, ids: Iterable[int], inputs: Mapping[str, str]) -> list[Self]:
        """The entries of a batch; `inputs` has the input of each by its external id."""
        new, set_source = cls.__new__, QueuedEntry.__dict__["_source"].__set__
        entries: list[Self] = []
        for entry_id, (external_id, text) in zip(ids, inputs.items(), strict=True):
            entry = new(cls)
            set_source(entry, (batch, entry_id, external_id, text))
            entries.append(entry)
        return entries

    if not TYPE_CHECKING:  # a type checker would accept any name

        def __getattr__(self, name: str) -> Any:
            """Set a missing attribute when it is first read."""
            match name:
                case "id" | "external_id":
                    value = self._source[("id", "external_id").index(name) + 1]
                case "input":
                    value = self._source[0].parse_input(self._source[3])
                case "_waits":
                    value = self._source[0].wait_function
                case _ if name in DEFAULTS:
                    value = self._source[0].fields.get(name, DEFAULTS[name])
                case _:
                    raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            object.__setattr__(self, name, value)
            return value

    def with_wait_function(self, wait_function: WaitFunction) -> Self:
        """Set how to wait, and return the entry; its creator must call this at once."""
        object.__setattr__(self, "_waits", wait_function)
        return self

    async def wait(self, timeout: float | timedelta | None = None) -> Metadata:  # noqa: ASYNC109 - promised
        """Wait until the job is over (completed, cancelled, failed after its retries); return its last run.

        Raises WaitTimedOut, a TimeoutError, after `timeout` (the job continues), and EntryCancelled if the
        entry is withdrawn. Retries of a manifest's run are separate entries.
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


class NewEntry(NamedTuple):
    """An entry to be written. `input` and `retry` are JSON text."""

    external_id: str
    train: str
    origin: Origin
    input: str | None = None
    priority: int = 0
    group_id: int | None = None
    group_priority: int = 0
    manifest_id: int | None = None
    dead_letter_id: int | None = None
    unique_key: str | None = None
    attempt: int = 1
    retry: str | None = None
    timeout_seconds: float | None = None
    scheduled_at: datetime | None = None
    scheduled_for: datetime | None = None


def new_external_id() -> str:
    """32 hex characters: the time first, so that ids of the same time are close in the index, then random."""
    return f"{time.time_ns() // 1_000_000:012x}{_random_hex()}"


def new_external_ids(count: int) -> list[str]:
    """The same for many, in ascending order: they are inserted at one place of the index."""
    if count == 1:
        return [new_external_id()]
    prefix = f"{time.time_ns() // 1_000_000:012x}"
    parts = os.urandom(RANDOM_BYTES * count).hex(" ", RANDOM_BYTES).split()
    return [prefix + part for part in sorted(parts)]


def _random_hex() -> str:
    """20 random hex characters, from a pool: a `urandom` call per id would dominate the cost of an entry."""
    while True:
        try:
            return _random_pool.popleft()
        except IndexError:
            text = os.urandom(RANDOM_BYTES * POOL_SIZE).hex()
            _random_pool.extend(
                text[at : at + 2 * RANDOM_BYTES] for at in range(0, len(text), 2 * RANDOM_BYTES)
            )
