"""The quick way into the work queue: a few entries that need nothing looked up, in one trip and committed."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select, true

from trax.events import Topic
from trax.store.announcing import announce, notifications
from trax.store.dialect import document, notifying
from trax.store.pipeline import commit_together, run_together
from trax.store.schema import tables_for
from trax.store.types import in_utc
from trax.store.work_queue import row_of, rows_to_insert

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Select

    from trax.records.work_queue_entry import NewEntry

Added = tuple[int, "datetime"]
"""The id of an entry, and when it was written."""


def add_and_commit(
    connection: Connection, entries: Sequence[NewEntry], *, now: datetime | None
) -> dict[str, Added]:
    """Write entries that may run at once and belong to no group; by external id."""
    announce(connection, Topic.WORK_QUEUE)
    given = {"entries": _document(entries), "now": now}
    telling = notifications(connection)
    statement = _insert_and_tell(connection.dialect.name) if telling else _insert(connection.dialect.name)
    for _, more in telling:
        given |= more
    return _added(commit_together(connection, (statement, given))[0])


def add_to_group(
    connection: Connection, entries: Sequence[NewEntry], group: str, *, now: datetime | None
) -> dict[str, Added]:
    """The same for entries of a group, which stays open to go on: nothing is written without that group."""
    given = {"entries": _document(entries), "now": now, "group_name": group}
    added = _added(run_together(connection, (_insert(connection.dialect.name, in_group=True), given))[0])
    if added:
        announce(connection, Topic.WORK_QUEUE)
    return added


def _document(entries: Sequence[NewEntry]) -> str:
    return document(row_of(entry, None) for entry in entries)


def _added(rows: Any) -> dict[str, Added]:
    return {external_id: (entry_id, in_utc(at)) for entry_id, external_id, at in rows}


@cache
def _insert_and_tell(dialect: str) -> Select[Any]:
    """The notification goes along: one statement needs no transaction around it."""
    made, told = _insert(dialect).cte("made"), select(notifying()).cte("told")
    return select(made).select_from(made.join(told, true()))


@cache
def _insert(dialect: str, *, in_group: bool = False) -> Any:
    queue = tables_for(dialect).work_queue
    rows = rows_to_insert(dialect, in_group=in_group)
    return insert(queue).from_select(*rows).returning(queue.c.id, queue.c.external_id, queue.c.created_at)
