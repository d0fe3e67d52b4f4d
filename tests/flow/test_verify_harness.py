"""`app.verify` under `Harness`, which dispatches without a row of its own: the app knows its code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import update
from tests.support.edited_history import NOON

from trax import Trax
from trax.inspect.verify import verify
from trax.records.verification import FindingKind
from trax.store.schema import tables
from trax.testing import Harness

if TYPE_CHECKING:
    from sqlalchemy import Connection

LIMIT = FindingKind.LIMIT_EXCEEDED


def plant_nine_active_runs(app: Trax) -> None:
    """Nine runs that were admitted one after the other, and are all active."""

    def plant(connection: Connection) -> None:
        values = {"state": "in_progress", "ended_at": None, "output": None}
        connection.execute(update(tables(connection).metadata).values(values))

    app.context.store.open_blocking().run(plant)


async def run_all(h: Harness) -> None:
    """Not as a server, which would record the limit that it declares."""
    while (await h.cycle("job_dispatcher")).has_changes:
        await h.work()


async def test_runs_beyond_the_limit_in_code_are_found(url: str) -> None:
    app = Trax(url, max_active_jobs=3)

    @app.train
    def work(number: int) -> int:
        return number

    async with Harness(app, now=NOON) as h:
        await app.queue_many(work, range(9))
        await run_all(h)
        clean = await app.verify()
        plant_nine_active_runs(app)

        found = await app.verify()

        assert (clean.counts, clean.undecided) == ({}, {})
        assert (found.total.most, found.total.limit, found.counts[LIMIT]) == (9, 3, 6)

        told_by_the_database = verify(app.context.store.open_blocking())
        assert LIMIT not in told_by_the_database.counts
        assert told_by_the_database.undecided[LIMIT] == 9


async def test_the_limit_before_the_harness_began_is_not_known(url: str) -> None:
    """The code that ran before may have had another one."""
    before = Trax(url, max_active_jobs=9)
    before.train(work := _number)
    async with Harness(before, now=NOON) as h:
        await before.queue_many(work.__name__, range(9))
        await run_all(h)
        plant_nine_active_runs(before)
    after = Trax(url, max_active_jobs=3)
    async with Harness(after, now=h.now.replace(hour=15)):
        found = await after.verify()

    assert LIMIT not in found.counts
    assert found.undecided[LIMIT] == 9


def _number(number: int) -> int:
    return number
