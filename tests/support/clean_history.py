"""Whether the records of a database, taken together, can have come about as promised."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from sqlalchemy import select
from tests.support.fleet import most_at_once, most_by_group

from trax.store import Store
from trax.store.schema import tables

if TYPE_CHECKING:
    from sqlalchemy import Connection


def assert_clean(url: str, *, limit: int | None = None) -> None:
    """Every entry ended once, and no limit was exceeded at any moment, by the records' own times."""
    store = Store(url)
    store.open()
    try:
        store.read(_check, limit)
    finally:
        store.close()


def _check(connection: Connection, limit: int | None) -> None:
    t = tables(connection)
    entries = list(connection.execute(select(t.work_queue)))
    is_admitted = (t.metadata.c.submitter.is_not(None)) & (t.metadata.c.exempt.is_(False))
    runs = list(connection.execute(select(t.metadata).where(is_admitted)))
    letters = {letter.last_metadata_id for letter in connection.execute(select(t.dead_letter))}
    groups = list(connection.execute(select(t.manifest_group)))

    by_id = {run.id: run for run in runs}
    for entry in entries:
        if entry.status == "dispatched":
            run = by_id.get(entry.metadata_id)
            assert run, f"entry {entry.id} was dispatched and has no run"
            assert run.state != "failed" or run.id in letters or entry.manifest_id, (
                f"entry {entry.id} is lost"
            )
    completed = Counter(run.external_id for run in runs if run.state == "completed")
    assert [entry for entry, count in completed.items() if count > 1] == []
    times = [(run.group_id, run.created_at, run.ended_at) for run in runs if run.ended_at]
    assert limit is None or most_at_once((begin, end) for _, begin, end in times) <= limit
    by_group = most_by_group((str(group_id), begin, end) for group_id, begin, end in times)
    for group in groups:
        assert group.max_active_jobs is None or by_group.get(str(group.id), 0) <= group.max_active_jobs
