"""Entries that go back to the queue after a run: to try again, or because the run was interrupted."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import case, select, text, update

from trax.events import Topic
from trax.records.states import Origin, QueueStatus
from trax.store.announcing import announce
from trax.store.dialect import document, rows_of
from trax.store.manifest_groups import priority_now
from trax.store.schema import tables_for
from trax.store.types import Utc, word

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row, Select, Update


def of_runs(connection: Connection, external_ids: Iterable[str]) -> dict[str, Row[Any]]:
    """The entries these runs came from, by the external id they share."""
    names = document({"external_id": one} for one in external_ids)
    rows = connection.execute(_of_runs(connection.dialect.name), {"names": names})
    return {row.external_id: row for row in rows}


def put_back(connection: Connection, moments: Mapping[str, datetime | None], *, attempts: int) -> list[int]:
    """Queue these entries again: at once, or not before a moment. `attempts` is added to their count.

    What the schedule had written comes back as requeued: by now it may have written the next one, of which
    there can be only one, and this is not it. Its group may have another priority by now.
    """
    if not moments:
        return []
    announce(connection, Topic.WORK_QUEUE)
    rows: Sequence[dict[str, Any]] = [
        {"external_id": one, "scheduled_at": moment, "ready": moment is None, "attempts": attempts}
        for one, moment in moments.items()
    ]
    statement = _put_back(connection.dialect.name)
    return list(connection.execute(statement, {"rows": document(rows)}).scalars())


@cache
def _of_runs(dialect: str) -> Select[Any]:
    queue = tables_for(dialect).work_queue
    given = rows_of(dialect, "names", {"external_id": queue.c.external_id.type})
    return select(queue).join(given, given.c.external_id == queue.c.external_id)


@cache
def _put_back(dialect: str) -> Update:
    queue, group = tables_for(dialect).work_queue, tables_for(dialect).manifest_group
    kinds: dict[str, Any] = {
        "external_id": queue.c.external_id.type,
        "scheduled_at": Utc(),
        "ready": queue.c.ready.type,
        "attempts": queue.c.attempt.type,
    }
    given = rows_of(dialect, "rows", kinds)
    return (
        update(queue)
        .where(queue.c.external_id == given.c.external_id, text("status = 'dispatched'"))
        .values(
            status=word(QueueStatus.QUEUED),
            origin=case(
                (text("origin IN ('schedule', 'retry')"), Origin.REQUEUE.value), else_=queue.c.origin
            ),
            ready=given.c.ready,
            scheduled_at=given.c.scheduled_at,
            group_priority=priority_now(queue, group),
            attempt=queue.c.attempt + given.c.attempts,
            metadata_id=None,
            dispatched_at=None,
        )
        .returning(queue.c.id)
    )
