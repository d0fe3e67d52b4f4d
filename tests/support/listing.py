"""The entries and runs of a store, the newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trax.records.nouns import EntryFilter, RunFilter
from trax.store.queue import queue_lists
from trax.store.runs import run_lists

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from trax.records.metadata import Metadata
    from trax.records.work_queue_entry import WorkQueueEntry


def entries(connection: Connection, *, limit: int = 50, **wanted: Any) -> list[WorkQueueEntry]:
    return queue_lists.ENTRIES.load_list(connection, EntryFilter(**wanted), limit=limit)


def runs(connection: Connection, *, limit: int = 50, **wanted: Any) -> list[Metadata]:
    return run_lists.RUNS.load_list(connection, RunFilter(**wanted), limit=limit)
