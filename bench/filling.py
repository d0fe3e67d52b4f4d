"""Fill a queue with jobs that do nothing, and check whether all have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import func, select, text

from trax.records.states import Origin
from trax.records.work_queue_entry import NewEntry, new_external_id
from trax.store import groups
from trax.store.queue import work_queue
from trax.store.schema import tables
from trax.store.schema.metadata import ACTIVE
from trax.store.schema.work_queue import QUEUED

if TYPE_CHECKING:
    from sqlalchemy import Select

    from trax.store import Connection, Store

GROUPS: Final = 50
GROUP_LIMIT: Final = 200
GLOBAL_LIMIT: Final = 5_000


def fill(connection: Connection, store: Store, jobs: int, *, limited: bool, train: str = "noop") -> None:
    """Queue jobs as `queue_many` does; with limits, spread evenly over the groups."""
    now = store.now(connection)
    ids: list[int | None] = list(_groups(connection, store)) if limited else [None]
    entries = [
        NewEntry(
            external_id=new_external_id(),
            train=train,
            origin=Origin.QUEUE,
            input=f'{{"number":{number}}}',
            group_id=ids[number % len(ids)],
        )
        for number in range(jobs)
    ]
    work_queue.add(connection, entries, now=now)


def _groups(connection: Connection, store: Store) -> list[int]:
    now = store.now(connection)
    named = groups.get_or_create(connection, [f"group-{number:02}" for number in range(GROUPS)], now=now)
    for name in named:
        groups.change(connection, name, {"max_active_jobs": GROUP_LIMIT}, now=now)
    return sorted(group.id for group in named.values())


def is_drained(connection: Connection) -> bool:
    """The newest entry runs last: while it is queued, this reads only one row."""
    return bool(connection.execute(_newest(connection)).scalar()) and bool(
        connection.execute(_nothing_left(connection)).scalar()
    )


def succeeded(connection: Connection) -> int:
    metadata = tables(connection).metadata
    done = select(func.count()).where(metadata.c.state == "completed", metadata.c.train == "noop")
    return connection.execute(done).scalar_one()


def _newest(connection: Connection) -> Select[Any]:
    t = tables(connection)
    run = t.work_queue.outerjoin(t.metadata, t.metadata.c.id == t.work_queue.c.metadata_id)
    ended = select(t.metadata.c.ended_at.is_not(None)).select_from(run)
    return ended.order_by(t.work_queue.c.id.desc()).limit(1)


def _nothing_left(connection: Connection) -> Select[Any]:
    t = tables(connection)
    active = select(t.metadata.c.id).where(text(ACTIVE)).exists()
    queued = select(t.work_queue.c.id).where(text(QUEUED)).exists()
    return select(~active & ~queued)
