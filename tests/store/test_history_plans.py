"""Reading the history costs as much as the rows that are read, whichever way of joining PostgreSQL takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.plans import rows_read

from trax import Trax
from trax.store import history
from trax.testing import Harness

if TYPE_CHECKING:
    from sqlalchemy import Connection

JOBS = 400


def load_by_nested_loops(connection: Connection) -> None:
    """As PostgreSQL does while it takes a table for a small one: by statistics of before it grew."""
    for other in ("hashjoin", "mergejoin", "bitmapscan", "material"):
        connection.exec_driver_sql(f"SET LOCAL enable_{other} = off")
    history.load_runs(connection, after=0, last=JOBS, limit=JOBS)


def load_entries_by_nested_loops(connection: Connection) -> None:
    for other in ("hashjoin", "mergejoin", "bitmapscan", "material"):
        connection.exec_driver_sql(f"SET LOCAL enable_{other} = off")
    history.load_entries(connection, after=0, last=JOBS, limit=JOBS)


async def test_each_run_is_read_with_its_entry_alone(postgres_url: str) -> None:
    app = Trax(postgres_url)

    @app.train
    async def greet(name: str) -> str:
        return name

    async with Harness(app) as h:
        await app.queue_many(greet, ["Ada"] * JOBS)
        await h.run_until_idle()

        store = await app.context.store.open()
        read = rows_read(store, load_by_nested_loops)
        of_entries = rows_read(store, load_entries_by_nested_loops)

    assert read <= 3 * JOBS
    assert of_entries <= 3 * JOBS
