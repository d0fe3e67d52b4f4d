"""A part of a transaction that may fail alone, also when the commit is on its way already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, event, select, text
from tests.support.steps import adding

from trax.events import Topic
from trax.records.states import Origin
from trax.records.work_queue_entry import NewEntry
from trax.store import Store
from trax.store.announce import announce
from trax.store.faults import RowsRefused, savepoint, try_together
from trax.store.listen import ListenConnection, Waker
from trax.store.pipeline import run_together
from trax.store.queue import work_queue
from trax.store.schema import tables

if TYPE_CHECKING:
    from collections.abc import Generator
    from datetime import datetime
    from pathlib import Path

    from sqlalchemy import Connection


@pytest.fixture
def postgres_store(postgres_url: str) -> Generator[Store]:
    store = Store(postgres_url)
    store.open()
    yield store
    store.close()


def names(connection: Connection) -> list[str]:
    setting = tables(connection).setting
    return list(connection.execute(select(setting.c.name).order_by(setting.c.name)).scalars())


@pytest.mark.parametrize("commit", [False, True])
def test_each_statement_returns_its_rows_and_all_are_committed(
    store: Store, now: datetime, *, commit: bool
) -> None:
    def steps(connection: Connection) -> Any:
        announce(connection, Topic.MANIFEST)
        both = (adding(connection, "a", now), adding(connection, "b", now))
        return try_together(connection, *both, commit=commit)

    assert store.run(steps) == [[("a",)], [("b",)]]
    assert store.read(names) == ["a", "b"]


@pytest.mark.parametrize("commit", [False, True])
def test_a_refused_statement_is_rolled_back_alone_and_the_transaction_continues(
    store: Store, now: datetime, *, commit: bool
) -> None:
    def steps(connection: Connection) -> None:
        run_together(connection, adding(connection, "before", now))
        with pytest.raises(RowsRefused, match=r"(?i)unique"):
            try_together(
                connection, adding(connection, "a", now), adding(connection, "before", now), commit=commit
            )
        assert names(connection) == ["before"]
        try_together(connection, adding(connection, "after", now))

    store.run(steps)

    assert store.read(names) == ["after", "before"]


@pytest.mark.parametrize("size", [2, work_queue.COPY_ABOVE + 1])
def test_one_refused_row_of_many_rolls_back_the_others(store: Store, now: datetime, size: int) -> None:
    """Very many are copied in, which is refused in another way."""
    entries = [NewEntry(external_id="same", train="greet", origin=Origin.QUEUE, unique_key="same")] * size

    def steps(connection: Connection) -> None:
        run_together(connection, adding(connection, "before", now))
        with pytest.raises(RowsRefused, match=r"(?i)unique"), savepoint(connection):
            work_queue.add(connection, entries, now=now)

    store.run(steps)

    assert store.read(names) == ["before"]


def test_a_transaction_that_fails_after_a_refusal_leaves_nothing(store: Store, now: datetime) -> None:
    """The commit that was sent along with what was refused must not have happened."""

    def steps(connection: Connection) -> None:
        run_together(connection, adding(connection, "a", now))
        with pytest.raises(RowsRefused):
            try_together(connection, adding(connection, "a", now), commit=True)
        raise LookupError

    with pytest.raises(LookupError):
        store.run(steps)

    assert store.read(names) == []


def test_the_commit_goes_along_in_the_same_trip(postgres_store: Store, now: datetime) -> None:
    def steps(connection: Connection) -> list[str]:
        try_together(connection, adding(connection, "a", now), commit=True)
        return postgres_store.read(names)

    assert postgres_store.run(steps) == ["a"], "somebody else saw it before the block ended"


@pytest.mark.parametrize("name", ["new", "taken"])
def test_other_processes_are_notified_once_also_after_a_refusal(
    postgres_store: Store, postgres_url: str, now: datetime, name: str
) -> None:
    said: list[str] = []

    def steps(connection: Connection) -> None:
        event.listen(connection, "before_cursor_execute", lambda *given: said.append(given[2]))
        run_together(connection, adding(connection, "taken", now))
        announce(connection, Topic.WORK_QUEUE)
        try:
            try_together(connection, adding(connection, name, now), commit=True)
        except RowsRefused:
            announce(connection, Topic.WORK_QUEUE)

    bell = Waker()
    with ListenConnection.open(postgres_url, bell) as line:
        postgres_store.run(steps)
        heard = line.receive(30)
    bell.close()

    assert [payload.split()[0] for payload in heard] == [Topic.WORK_QUEUE]
    assert sum("pg_notify" in statement for statement in said) == 1


def test_a_connection_without_a_transaction_begins_one(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/own.db")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE own (name TEXT)"))

    with engine.connect() as connection:
        run_together(connection, (text("INSERT INTO own VALUES (:name)"), {"name": "a"}))
        began = connection.in_transaction()
        connection.commit()

    with engine.connect() as connection:
        assert (began, run_together(connection, (text("SELECT name FROM own"), {}))) == (True, [[("a",)]])
    engine.dispose()
