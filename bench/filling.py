"""Fill a queue with jobs that do nothing, and check whether all have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

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

GLOBAL_LIMIT: Final = 5_000


class Shape(NamedTuple):
    """How the jobs of a queue are spread: over groups with a limit, and over priorities."""

    groups: int = 0
    limit: int | None = None
    """The limit of each group."""
    flood: float = 0.0
    """The share of the jobs that the first group has; the others share the rest."""
    priorities: int = 1
    max_active_jobs: int | None = GLOBAL_LIMIT

    def group_of(self, number: int, jobs: int) -> int | None:
        if not self.groups:
            return None
        flood = int(jobs * self.flood)
        return 0 if number < flood else number % self.groups if not flood else 1 + number % (self.groups - 1)


SHAPES: Final = {
    "no limits": Shape(max_active_jobs=None),
    "no group": Shape(),
    "one group": Shape(groups=1, limit=1_500),
    "one group at its limit": Shape(groups=1, limit=200),
    "50 groups": Shape(groups=50, limit=200),
    "10,000 groups": Shape(groups=10_000, limit=2),
    "mixed priorities": Shape(groups=50, limit=200, priorities=32),
    "a flooded group beside 49": Shape(groups=50, limit=400, flood=0.9),
}
"""The shapes of queues that users have."""
USUAL: Final = "50 groups"


def fill(connection: Connection, store: Store, jobs: int, *, shape: str = USUAL, train: str = "noop") -> None:
    """Queue jobs as `queue_many` does, in this shape."""
    now, spread = store.now(connection), SHAPES[shape]
    ids = _groups(connection, store, spread)
    groups_of = (spread.group_of(number, jobs) for number in range(jobs))
    entries = [
        NewEntry(
            external_id=new_external_id(),
            train=train,
            origin=Origin.QUEUE,
            input=f'{{"number":{number}}}',
            priority=number * 7 % spread.priorities,
            group_id=None if group is None else ids[group],
        )
        for number, group in enumerate(groups_of)
    ]
    work_queue.add(connection, entries, now=now)


def _groups(connection: Connection, store: Store, shape: Shape) -> list[int]:
    if not shape.groups:
        return []
    now, group = store.now(connection), tables(connection).manifest_group
    names = [f"group-{number:05}" for number in range(shape.groups)]
    named = groups.get_or_create(connection, names, now=now)
    connection.execute(group.update().values(max_active_jobs=shape.limit))
    return [named[name].id for name in names]


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
