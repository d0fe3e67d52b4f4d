"""How to test trains: the same engine in memory, turn by turn, with a clock that only moves when told.

Run it with `pytest test_with_harness.py`; pytest-asyncio (`asyncio_mode = "auto"`) awaits the tests. Your own
tests import the app instead of making one.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from trax import InvalidInput, Retry, Trax, cron
from trax.testing import Harness

EVENING = datetime(2027, 3, 27, 20, tzinfo=UTC)


class Disk:
    """What the train needs from outside, so that a test can break it."""

    full = False


def railway(disk: Disk) -> Trax:
    app = Trax("memory://")
    app.provide(Disk, disk)

    @app.train(retry=Retry(max_attempts=2, delay=timedelta(minutes=5)))
    def back_up(table: str, disk: Disk) -> str:
        if disk.full:
            raise OSError("the disk is full")
        return f"{table} is safe"

    nightly = cron("0 3 * * *", tz="Europe/Berlin")
    app.schedule(back_up, "nightly", "users", nightly)
    return app


async def test_a_train_can_be_run_by_itself() -> None:
    app = railway(Disk())

    assert await app.run(app.trains.get("back_up"), "orders") == "orders is safe"
    app.close()


async def test_the_backup_runs_at_three_in_the_morning_also_when_the_clocks_change() -> None:
    app = railway(Disk())

    async with Harness(app, now=EVENING) as h:
        await h.run_until_idle()
        assert await app.executions.list() == []

        await h.advance(hours=5)  # 03:00 in Berlin, where this night has no 02:30
        await h.run_until_idle()

        (run,) = await app.executions.list()
        assert (run.manifest, run.output) == ("nightly", "users is safe")


async def test_a_backup_that_keeps_failing_waits_for_a_person() -> None:
    disk = Disk()
    disk.full = True
    app = railway(disk)

    async with Harness(app, now=EVENING) as h:
        for _ in range(2):
            await h.advance(hours=5)
            await h.run_until_idle()
        (letter,) = await app.dead_letters.list()
        assert letter.reason == "failed 2 times in a row; max_attempts is 2"

        disk.full = False
        await app.dead_letters.requeue([letter.id])
        await h.run_until_idle()
        assert (await app.executions.list(state="completed", limit=1))[0].output == "users is safe"


async def test_bad_input_is_refused_where_it_enters() -> None:
    app = railway(Disk())

    with pytest.raises(InvalidInput, match="back_up"):
        await app.queue("back_up", {"not": "a table"})
    app.close()
