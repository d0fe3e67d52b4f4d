from __future__ import annotations

import json
import os
import socket
import sqlite3
import traceback
from contextlib import suppress
from datetime import datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import make_url, text
from sqlalchemy.exc import DBAPIError

from trax.errors import AccessDenied, InvalidUrl, SchemaNotMigrated, StoreError, StoreUnavailable
from trax.events import Topic
from trax.store import Store, dialect, groups, postgresql
from trax.store import engine as store_engine
from trax.store.faults import RowsRefused, savepoint, translate_errors
from trax.store.pipeline import commit_together
from trax.store.queue import work_queue
from trax.store.url import choose_url

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Connection
    from tests.support.databases import PostgresDatabases


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("trax.db", "'trax.db' is not a database URL; use postgresql://"),
        ("mysql://box/db", "unsupported database 'mysql'; use postgresql://"),
        ("sqlite://trax.db", r"needs three slashes: sqlite:///trax\.db \("),
        ("sqlite://tmp/x.db", r"needs three slashes: sqlite:///tmp/x\.db \(four for an absolute path"),
        ("sqlite://data/jobs/x.db", r"needs three slashes: sqlite:///data/jobs/x\.db"),
        ("postgresql://box", "has no database name"),
        ("postgresql://ada:secret@box:port/db", r"postgresql://\*\*\*@box:port/db"),
    ],
)
def test_a_wrong_address_is_refused_with_the_right_one_beside_it(address: str, said: str) -> None:
    with pytest.raises(InvalidUrl, match=said) as refused:
        Store(address)

    assert "secret" not in str(refused.value)


def test_the_address_comes_from_the_argument_then_the_environment_then_the_default() -> None:
    environment = {"TRAX_DATABASE_URL": "memory://"}

    assert choose_url("sqlite:///a.db", environment) == "sqlite:///a.db"
    assert choose_url(None, environment) == "memory://"
    assert choose_url(None, {}) == "sqlite:///trax.db"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("memory://", "memory://"),
        ("sqlite:///trax.db", "sqlite:///trax.db"),
        ("postgresql://ada:secret@box/db", "postgresql://ada:***@box/db"),
    ],
)
def test_an_address_is_shown_as_it_was_written_without_its_password(address: str, shown: str) -> None:
    store = Store(address)

    assert store.address == shown
    store.close()


def test_an_unreachable_server_is_a_passing_fault_and_keeps_the_password() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        store = Store(f"postgresql://ada:secret@127.0.0.1:{unused.getsockname()[1]}/db")

        with pytest.raises(StoreUnavailable, match="cannot be reached") as failed:
            store.open()

    assert failed.value.transient
    assert "secret" not in str(failed.value)
    assert len(str(failed.value).splitlines()) == 1
    store.close()


def test_a_database_that_does_not_exist_is_named(postgres_url: str) -> None:
    store = Store(make_url(postgres_url).set(database="nowhere").render_as_string())

    with pytest.raises(AccessDenied, match=r'has no such database.*"nowhere"'):
        store.open()
    store.close()


def test_missing_rights_are_named(postgres_databases: PostgresDatabases) -> None:
    with postgres_databases.database(migrated=False) as url:
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute("CREATE ROLE trax_guest LOGIN")
        store = Store(make_url(url).set(username="trax_guest").render_as_string())
        try:
            with pytest.raises(AccessDenied, match="does not permit this to this user") as denied:
                store.open()
        finally:
            store.close()
            with psycopg.connect(url, autocommit=True) as admin:
                admin.execute("DROP ROLE trax_guest")

    assert not denied.value.transient


def test_an_unknown_user_is_named(postgres_url: str) -> None:
    store = Store(make_url(postgres_url).set(username="nobody_here").render_as_string())

    with pytest.raises(AccessDenied, match=r'rejects this user.*"nobody_here"'):
        store.open()
    store.close()


def test_missing_tables_name_the_command_to_create_them(empty_url: str, now: datetime) -> None:
    store = Store(empty_url)

    with pytest.raises(SchemaNotMigrated, match="trax db migrate"):
        store.run(groups.get_or_create, ["a"], now=now)
    store.close()


def test_a_moment_without_a_zone_is_the_callers_mistake(store: Store) -> None:
    with pytest.raises(ValueError, match="no time zone"):
        store.run(groups.get_or_create, ["a"], now=datetime(2027, 1, 1))  # noqa: DTZ001


def test_a_file_that_may_only_be_read_is_named(tmp_path: Path, now: datetime) -> None:
    file = tmp_path / "trax.db"
    store = Store(f"sqlite:///{file}")
    store.open()
    store.close()
    readonly = Store(f"sqlite:///file:{file}?mode=ro&uri=true")

    with pytest.raises(AccessDenied, match="permissions"):
        readonly.run(groups.get_or_create, ["a"], now=now)
    readonly.close()


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/no/such/folder/trax.db")

    with pytest.raises(AccessDenied, match="check the file, its folder"):
        store.open()
    store.close()


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    file = tmp_path / "trax.db"
    file.write_bytes(os.urandom(4096))
    store = Store(f"sqlite:///{file}")

    with pytest.raises(AccessDenied, match="not a database"):
        store.open()
    store.close()


def test_a_busy_file_is_a_passing_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_engine, "BUSY_SECONDS", 0)
    file = tmp_path / "trax.db"
    store = Store(f"sqlite:///{file}")
    store.open()
    writer = sqlite3.connect(file, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreUnavailable, match="is busy"):
        store.run(lambda _connection: None)

    writer.close()
    store.close()


def test_an_old_sqlite_is_refused_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.34.1")

    with pytest.raises(StoreError, match=r"uses SQLite 3\.34\.1; Trax needs 3\.35\.0 or newer"):
        Store("memory://")


def test_the_driver_error_stays_reachable_as_the_cause(store: Store) -> None:
    def divide(connection: Connection) -> None:
        connection.execute(text("SELECT nonsense FROM nowhere"))

    with pytest.raises(StoreError) as failed:
        store.run(divide)

    assert failed.value.__cause__ is not None


def test_a_connection_the_server_has_closed_is_replaced(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "IDLE_SECONDS", 0)
    store = Store(postgres_url)
    mine = store.read(lambda connection: connection.execute(text("SELECT pg_backend_pid()")).scalar_one())
    with psycopg.connect(postgres_url) as admin:
        admin.execute("SELECT pg_terminate_backend(%s)", (mine,))

    assert store.read(work_queue.get, 1) is None
    store.close()


def test_a_connection_lost_in_a_transaction_is_a_passing_fault(postgres_url: str) -> None:
    store = Store(postgres_url)

    def killed(connection: Connection) -> None:
        mine = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        with psycopg.connect(postgres_url) as admin:
            admin.execute("SELECT pg_terminate_backend(%s)", (mine,))
        connection.execute(text("SELECT 1"))

    with pytest.raises(StoreUnavailable):
        store.run(killed)
    assert store.read(work_queue.get, 1) is None
    store.close()


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://trax:hunter2@hunter2@127.0.0.1:1/jobs",
        "postgres:/trax:hunter2@127.0.0.1:1/jobs",
        "postgresql://trax:hunter2",
        "postgresql://127.0.0.1:1?password=hunter2",
        "host=127.0.0.1 password=hunter2",
        "oracle://trax:hunter2@127.0.0.1/jobs",
    ],
)
def test_an_address_that_is_refused_shows_no_password(address: str) -> None:
    with pytest.raises(InvalidUrl) as refused:
        Store(address)

    assert "hunter2" not in str(refused.value)


def test_a_password_among_the_parameters_of_an_address_is_not_shown() -> None:
    store = Store("postgresql://trax@127.0.0.1:1/jobs?password=hunter2&sslpassword=hunter2")

    with pytest.raises(StoreUnavailable) as unreachable:
        store.open()
    store.close()

    assert "password=***&sslpassword=***" in str(unreachable.value)
    assert "hunter2" not in "".join(traceback.format_exception(unreachable.value))


# A traceback shows the lines of this file too, so they do not spell it.
WORD = "hunter" + str(2)
REFUSED = {
    "a key that is taken": "INSERT INTO hidden VALUES (:value, 1), (:value, 1)",
    "a row that a rule forbids": "INSERT INTO hidden VALUES (:value, -1)",
    "a value that is missing": "INSERT INTO hidden VALUES (:value, NULL)",
    "a statement that is wrong": "INSERT INTO hidden VALUES (:value, no_such_column)",
}


@pytest.mark.parametrize("statement", REFUSED.values(), ids=REFUSED)
def test_row_values_stay_out_of_errors_and_tracebacks(store: Store, statement: str) -> None:
    def refuse(connection: Connection) -> None:
        kind = "CREATE TABLE hidden (word TEXT PRIMARY KEY, n INTEGER NOT NULL CHECK (n > 0))"
        connection.execute(text(kind))
        connection.execute(text(statement), {"value": WORD})

    with pytest.raises(StoreError) as refused:
        store.run(refuse)

    assert WORD not in "".join(traceback.format_exception(refused.value))


def test_a_value_that_postgresql_cannot_read_is_not_repeated(postgres_url: str) -> None:
    store = Store(postgres_url)

    def refuse(connection: Connection) -> None:
        connection.execute(text("SELECT CAST(:value AS integer)"), {"value": f'a"{WORD}'})

    with pytest.raises(StoreError, match="invalid input syntax for type integer") as refused:
        store.run(refuse)
    store.close()

    assert WORD not in "".join(traceback.format_exception(refused.value))


def test_row_values_of_a_refused_savepoint_stay_out_of_errors(store: Store) -> None:
    def refuse(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE hidden (word TEXT PRIMARY KEY)"))
        with savepoint(connection):
            connection.execute(text("INSERT INTO hidden VALUES (:word), (:word)"), {"word": WORD})

    with pytest.raises(RowsRefused) as refused:
        store.run(refuse)

    assert WORD not in "".join(traceback.format_exception(refused.value))


class OtherDriver(Exception):
    """An error of a driver that adds the row to its words each time it is asked."""

    sqlstate = "23505"
    detail: str | None = f"Key (word)=({WORD}) already exists."

    def __str__(self) -> str:
        return "\n".join([str(self.args[0]), *([f"DETAIL:  {self.detail}"] if self.detail else ())])


def test_row_values_stay_out_of_errors_of_other_drivers() -> None:
    error = DBAPIError("INSERT", {"word": WORD}, OtherDriver("duplicate key"), hide_parameters=False)

    with pytest.raises(StoreError) as refused, translate_errors("postgresql://db/jobs"):
        raise error

    assert "duplicate key" in str(refused.value)
    assert WORD not in "".join(traceback.format_exception(refused.value))


def test_any_error_of_a_driver_on_a_lost_connection_is_passing_with_an_unknown_outcome(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(connection: Connection, _statement: Any) -> None:
        driver: Any = connection.connection.driver_connection
        driver.pgconn.finish()
        raise psycopg.ProgrammingError("what a driver says of a connection that it cannot reset")

    store = Store(postgres_url)
    monkeypatch.setattr("trax.store.store.commit_alone", lose)
    with pytest.raises(StoreUnavailable, match="the connection was lost") as lost:
        store.run_alone((text("SELECT 1"), {}), Topic.PENDING)

    assert lost.value.may_be_committed
    store.close()


def test_an_error_that_hides_the_loss_of_its_connection_leaves_the_outcome_unknown(postgres_url: str) -> None:
    def work(connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        driver.pgconn.finish()
        raise psycopg.ProgrammingError("autocommit cannot be changed now")

    store = Store(postgres_url)
    with pytest.raises(StoreUnavailable) as lost:
        store._connect({}, work)  # pyright: ignore[reportPrivateUsage]  # as for a statement alone
    store.close()

    assert lost.value.may_be_committed


def test_an_error_that_ends_the_session_leaves_the_outcome_unknown() -> None:
    class Ended(psycopg.errors.AdminShutdown):
        @property
        def diag(self) -> Any:
            return SimpleNamespace(severity_nonlocalized="FATAL", message_primary="terminating connection")

    with pytest.raises(StoreUnavailable) as failed, translate_errors("postgresql://box/db"):
        raise Ended

    assert failed.value.may_be_committed


def test_a_disk_that_fails_at_a_commit_leaves_the_outcome_unknown() -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = "SQLITE_IOERR_FSYNC"

    with pytest.raises(StoreUnavailable) as failed, translate_errors("sqlite:///trax.db"):
        raise error

    assert failed.value.may_be_committed


def test_a_session_that_is_ended_during_a_statement_leaves_the_outcome_unknown(postgres_url: str) -> None:
    store, end_session = Store(postgres_url), text("SELECT pg_terminate_backend(pg_backend_pid())")
    with pytest.raises(StoreUnavailable, match="terminating connection") as ended:
        store.run(lambda connection: connection.execute(end_session))

    assert ended.value.may_be_committed
    store.close()


def test_a_commit_in_the_same_round_trip_must_be_answered_as_one(postgres_url: str) -> None:
    def hide_an_error(connection: Connection) -> None:
        with suppress(DBAPIError):
            connection.execute(text("SELECT 1 / 0"))
        commit_together(connection)

    store = Store(postgres_url)
    with pytest.raises(StoreError, match="COMMIT was answered with ROLLBACK"):
        store.run(hide_an_error)
    store.close()


def test_documents_are_split_until_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialect, "MAX_DOCUMENT_CHARACTERS", 100)
    rows = [{"number": number, "text": "x" * (200 if number == 3 else 20)} for number in range(9)]

    parts = [json.loads(part) for part in dialect.documents(rows)]

    assert [row for part in parts for row in part] == rows
    assert all(len(part) == 1 or len(str(part)) < 150 for part in parts)
    assert len(parts) > 4
