"""Insert a few queue entries that need no lookups, and commit, in one round trip."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select, true

from trax.events import Topic
from trax.store.announcing import announce, notifications
from trax.store.dialect import document, notify_expression
from trax.store.pipeline import commit_together, run_together
from trax.store.schema import tables_for
from trax.store.types import in_utc
from trax.store.work_queue import row_of, rows_to_insert

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Select

    from trax.records.work_queue_entry import NewEntry

InsertedEntry = tuple[int, "datetime"]
"""The id of an entry and its `created_at`."""


def add_and_commit(
    connection: Connection, entries: Sequence[NewEntry], *, now: datetime | None
) -> dict[str, InsertedEntry]:
    """Insert entries without group or delay, and commit. Returns them by external id."""
    announce(connection, Topic.WORK_QUEUE)
    parameters = {"entries": _document(entries), "now": now}
    notices = notifications(connection)
    statement = (
        _insert_and_notify(connection.dialect.name) if notices else _insert_returning(connection.dialect.name)
    )
    for _, more in notices:
        parameters |= more
    return _parse_inserted(commit_together(connection, (statement, parameters))[0])


def add_to_group(
    connection: Connection, entries: Sequence[NewEntry], group: str, *, now: datetime | None
) -> dict[str, InsertedEntry]:
    """Insert entries of a group, without commit. Inserts nothing if the group does not exist."""
    parameters = {"entries": _document(entries), "now": now, "group_name": group}
    inserted = _parse_inserted(
        run_together(connection, (_insert_returning(connection.dialect.name, in_group=True), parameters))[0]
    )
    if inserted:
        announce(connection, Topic.WORK_QUEUE)
    return inserted


def _document(entries: Sequence[NewEntry]) -> str:
    return document(row_of(entry, None) for entry in entries)


def _parse_inserted(rows: Any) -> dict[str, InsertedEntry]:
    return {external_id: (entry_id, in_utc(created_at)) for entry_id, external_id, created_at in rows}


@cache
def _insert_and_notify(dialect: str) -> Select[Any]:
    """Insert and notify in one statement, which needs no explicit transaction."""
    inserted, notified = (
        _insert_returning(dialect).cte("inserted"),
        select(notify_expression()).cte("notified"),
    )
    return select(inserted).select_from(inserted.join(notified, true()))


@cache
def _insert_returning(dialect: str, *, in_group: bool = False) -> Any:
    queue = tables_for(dialect).work_queue
    rows = rows_to_insert(dialect, in_group=in_group)
    return insert(queue).from_select(*rows).returning(queue.c.id, queue.c.external_id, queue.c.created_at)
