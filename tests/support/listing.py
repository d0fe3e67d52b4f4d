"""What is in the store, for tests that look: the newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trax.records.filters import EntryFilter, RunFilter
from trax.store import queue_pages, run_pages

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from trax.records.metadata import Metadata
    from trax.records.work_queue_entry import WorkQueueEntry


def entries(connection: Connection, *, limit: int = 50, **wanted: Any) -> list[WorkQueueEntry]:
    return queue_pages.ENTRIES.load_list(connection, EntryFilter(**wanted), limit=limit)


def runs(connection: Connection, *, limit: int = 50, **wanted: Any) -> list[Metadata]:
    return run_pages.RUNS.load_list(connection, RunFilter(**wanted), limit=limit)
