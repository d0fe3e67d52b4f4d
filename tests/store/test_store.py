from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import func, select

from trax.store import Store, groups
from trax.store import engine as store_engine
from trax.store.schema import tables

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from sqlalchemy import Connection

flavour: ContextVar[str] = ContextVar("flavour")


def count_groups(connection: Connection) -> int:
    return connection.execute(
        select(func.count()).select_from(tables(connection).manifest_group)
    ).scalar_one()


def test_changes_of_a_function_are_rolled_back_when_it_raises(store: Store, now: datetime) -> None:
    def fail(connection: Connection) -> None:
        groups.get_or_create(connection, ["a"], now=now)
        raise LookupError("original")

    with pytest.raises(LookupError, match="original"):
        store.run(fail)

    assert store.read(count_groups) == 0


async def test_async_code_makes_one_hop_a_transaction(store: Store, now: datetime) -> None:
    def who(connection: Connection) -> tuple[str, str]:
        groups.get_or_create(connection, ["a"], now=now)
        return threading.current_thread().name, flavour.get()

    flavour.set("sweet")
    thread, tasted = await store.call(who)

    assert thread.startswith("trax-store")
    assert tasted == "sweet"
    assert await store.ask(count_groups) == 1


async def test_a_cancelled_caller_does_not_abandon_a_started_transaction(store: Store, now: datetime) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(connection: Connection) -> None:
        begun.set()
        go_on.wait()
        groups.get_or_create(connection, ["a"], now=now)

    caller = asyncio.create_task(store.call(slow))
    await asyncio.to_thread(begun.wait)
    caller.cancel()
    await asyncio.to_thread(lambda: None)
    assert not caller.done()
    go_on.set()

    with pytest.raises(asyncio.CancelledError):
        await caller
    assert store.read(count_groups) == 1


async def test_many_callers_at_once_each_get_their_turn(store: Store, now: datetime) -> None:
    await asyncio.gather(*(store.call(groups.get_or_create, [f"g{n}"], now=now) for n in range(30)))

    assert store.read(count_groups) == 30


ADD_GROUPS = """
import sys
from datetime import UTC, datetime
from trax.store import Store, groups
store = Store(sys.argv[1])
store.open()
for number in range(50):
    store.run(groups.get_or_create, [f"{sys.argv[2]}-{number}"], now=datetime.now(UTC))
store.close()
"""


def test_several_processes_share_one_sqlite_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/trax.db"
    processes = [
        subprocess.Popen([sys.executable, "-c", ADD_GROUPS, url, str(number)]) for number in range(4)
    ]

    assert [process.wait() for process in processes] == [0, 0, 0, 0]

    store = Store(url)
    assert store.read(count_groups) == 200
    store.close()


def test_sqlite_is_durable_and_guards_its_references(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/trax.db")

    def pragmas(connection: Connection) -> list[object]:
        names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        return [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names]

    full = 2
    assert store.run(pragmas) == ["wal", full, 1, 30_000]
    store.close()


def test_a_reader_does_not_wait_for_a_writer_in_sqlite(tmp_path: Path, now: datetime) -> None:
    store = Store(f"sqlite:///{tmp_path}/trax.db")
    store.open()

    def read_while_writing(connection: Connection) -> int:
        groups.get_or_create(connection, ["a"], now=now)
        return store.read(count_groups)

    assert store.run(read_while_writing) == 0
    assert store.read(count_groups) == 1
    store.close()


def test_a_new_file_that_others_switch_to_wal_at_the_same_time_is_waited_for() -> None:
    class Busy:
        """A connection that is refused twice, as SQLite does while another one switches."""

        def __init__(self) -> None:
            self.refusals = 2
            self.said: list[str] = []
            self.isolation_level: str | None = ""

        def execute(self, statement: str) -> None:
            self.said.append(statement)
            if "journal_mode" in statement and self.refusals:
                self.refusals -= 1
                error = sqlite3.OperationalError("database is locked")
                error.sqlite_errorcode = sqlite3.SQLITE_BUSY
                raise error

    busy = Busy()

    store_engine._prepare_sqlite(busy, None)  # pyright: ignore[reportPrivateUsage, reportArgumentType]

    assert [one.split()[1] for one in busy.said] == [*["journal_mode"] * 3, "synchronous", "foreign_keys"]
