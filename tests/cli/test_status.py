from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from tests.support.operator import publish, register

from trax.clock import utc_now
from trax.records.states import Origin
from trax.records.work_queue_entry import NewEntry
from trax.store import Store
from trax.store.queue import work_queue

if TYPE_CHECKING:
    from datetime import datetime

    from tests.cli.conftest import Railway
    from tests.support.operator import Operator

    from trax.store import Connection


@pytest.fixture(autouse=True)
def the_present(trains: Railway) -> datetime:
    """The command asks the database for the time, so what it finds must be of today."""
    now = utc_now()
    asyncio.run(trains.runs(0, at=now))
    return now


def test_status_shows_waiting_entries_runs_and_workers(operator: Operator) -> None:
    publish(operator.url, "greet")
    operator("queue", "add", "greet", '{"name": "Bob"}')
    operator("queue", "add", "greet", '{"name": "Eve"}', "--delay", "600")
    register(operator.url, beaten_at=utc_now())

    shown = operator("status")
    found = operator.json("status")

    said = dict(line for line in shown.lines if len(line) == 2)
    assert (said["ready"], said["delayed"], said["dead letters waiting"], said["workers"]) == (*"1111",)
    assert "Z (in 9 min" in said["next delayed entry"]
    assert shown.lines[-1][1:4] == ["box", "7", "4"]
    assert (found["failed_last_hour"], found["manifests_enabled"], found["running"]) == (1, 1, 0)
    assert (found["workers"][0]["host"], found["problems"]) == ("box", [])


def test_a_check_is_silent_while_all_is_well(operator: Operator) -> None:
    told = operator("status", "--check")

    assert (told.code, told.out, told.err) == (0, "", "")


def test_a_check_fails_when_a_due_manifest_is_not_queued(
    operator: Operator, trains: Railway, the_present: datetime
) -> None:
    asyncio.run(_make_due(trains, the_present - timedelta(hours=1)))

    told = operator("status", "--check")
    document = operator("status", "--check", "--json")

    assert (told.code, told.out) == (1, "")
    assert told.err.startswith("trax: no scheduler checks manifests: one is due since ")
    assert (document.code, '"problems": [\n' in document.out) == (1, True)


async def _make_due(trains: Railway, moment: datetime) -> None:
    """Switching it on makes it due at once, and here that was long ago."""
    trains.app.context.store.clock = lambda: moment
    await trains.app.manifests.enable("greet-ada")


def test_a_check_fails_when_work_waits_and_no_worker_lives(operator: Operator, the_present: datetime) -> None:
    register(operator.url, beaten_at=the_present - timedelta(minutes=5))
    store = Store(operator.url)
    store.run(_queued_long_ago, the_present - timedelta(minutes=5))
    store.close()

    told = operator("status", "--check")

    assert (told.code, told.err) == (1, "trax: no worker is alive, and 1 is ready in the queue\n")
    assert operator.json("status")["workers"] == []


def _queued_long_ago(connection: Connection, now: datetime) -> None:
    work_queue.add(connection, [NewEntry(external_id="x", train="greet", origin=Origin.QUEUE)], now=now)


def test_a_check_fails_when_the_database_cannot_be_reached(operator: Operator) -> None:
    told = operator.plainly("status", "--check", "--database-url", "postgresql://ada:secret@127.0.0.1:1/db")

    assert told.code == 1
    assert told.err.startswith("trax: postgresql://ada:***@127.0.0.1:1/db cannot be reached")
    assert told.err.count("\n") == 1
