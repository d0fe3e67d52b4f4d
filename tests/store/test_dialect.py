from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Boolean, Float, Text, func, select
from tests.support.waiting import until

from trax.clock import utc_now
from trax.settings import Settings
from trax.store import Store, dialect
from trax.store.manifests import manifest_due
from trax.store.pipeline import bulk_copy
from trax.store.schema import tables
from trax.store.types import BigId, JsonText, Utc

if TYPE_CHECKING:
    from collections.abc import Generator

    from sqlalchemy import Connection

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "number": st.none() | st.integers(-(2**63), 2**63 - 1),
            "word": st.none() | TEXTS,
            "flag": st.booleans(),
            "ratio": st.floats(-1e300, 1e300, allow_subnormal=False),
            "moment": st.none()
            | st.datetimes(datetime(1000, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
            "json": st.none()
            | st.sampled_from(['"a\\u0000"', "true", "null", "[1, 2]", "1e400", '"1"', "1"]),
        }
    ),
    max_size=5,
)
KINDS: dict[str, Any] = {
    "number": BigId,
    "word": Text(),
    "flag": Boolean(),
    "ratio": Float(),
    "moment": Utc(),
    "json": JsonText,
}


def leads(connection: Connection) -> bool:
    return manifest_due.start_cycle(connection, Settings.load({}, {}), now=utc_now()).is_leader


@pytest.fixture
def two(postgres_url: str) -> Generator[tuple[Store, Store]]:
    """Two servers on one PostgreSQL."""
    servers = Store(postgres_url), Store(postgres_url)
    yield servers
    for server in servers:
        server.close()


def waiting_for_a_lock(url: str) -> bool:
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "select count(*) from pg_locks where mode = 'ShareUpdateExclusiveLock' and not granted"
        ).fetchone()
    return bool(row and row[0])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows=ROWS)
def test_a_document_is_read_back_as_the_rows_it_was_made_of(store: Store, rows: list[dict[str, Any]]) -> None:
    def read_back(connection: Connection) -> list[dict[str, Any]]:
        given = dialect.rows_of(connection.dialect.name, "rows", KINDS)
        result = connection.execute(select(given), {"rows": dialect.document(rows)})
        return [dict(row) for row in result.mappings()]

    assert store.read(read_back) == rows


def test_the_clock_is_aware_and_moves(url: str) -> None:
    store = Store(url)

    first, second = store.run(store.now), store.run(store.now)

    assert first.utcoffset() == timedelta(0)
    assert first <= second
    store.close()


def test_one_server_leads_and_the_other_does_not_wait(two: tuple[Store, Store]) -> None:
    first, second = two

    def lead_while_the_other_tries(connection: Connection) -> tuple[bool, bool]:
        return leads(connection), second.run(leads)

    assert first.run(lead_while_the_other_tries) == (True, False)
    assert second.run(leads)


def test_the_gate_admits_one_at_a_time_and_the_next_sees_the_changes(
    two: tuple[Store, Store], postgres_url: str
) -> None:
    first, second = two
    seen: list[int] = []

    def write_one(connection: Connection) -> None:
        dialect.take_gate_lock(connection)
        thread.start()
        until(lambda: waiting_for_a_lock(postgres_url))
        groups = tables(connection).manifest_group
        connection.execute(
            groups.insert().values(
                name="x", created_at=first.now(connection), updated_at=first.now(connection)
            )
        )

    def count(connection: Connection) -> int:
        dialect.take_gate_lock(connection)
        return connection.execute(
            select(func.count()).select_from(tables(connection).manifest_group)
        ).scalar_one()

    thread = threading.Thread(target=lambda: seen.append(second.run(count)))
    first.run(write_one)
    thread.join()

    assert seen == [1]


def test_a_notification_is_sent_when_its_transaction_commits(
    two: tuple[Store, Store], postgres_url: str
) -> None:
    store, _ = two

    def fail(connection: Connection) -> None:
        dialect.notify(connection, "lost")
        raise LookupError

    with psycopg.connect(postgres_url, autocommit=True) as listener:
        listener.execute(f"LISTEN {dialect.CHANNEL}")
        with pytest.raises(LookupError):
            store.run(fail)
        store.run(dialect.notify, "work_queue")

        heard = [notice.payload for notice in listener.notifies(timeout=30, stop_after=1)]

    assert heard == ["work_queue"]


def migrates(connection: Connection) -> None:
    for table in (None, "trax.alembic_version"):
        dialect.take_migration_lock(connection, table)


@pytest.mark.parametrize(
    "step",
    [
        leads,
        migrates,
        dialect.take_gate_lock,
        dialect.take_leader_lock,
        dialect.take_settings_lock,
        dialect.take_totals_lock,
        dialect.try_cleanup_lock,
    ],
)
def test_every_lock_can_be_acquired_in_either_dialect(store: Store, step: Any) -> None:
    assert store.run(step) in {True, None}


def test_reserved_ids_are_not_reused(store: Store) -> None:
    def reserve_twice(connection: Connection) -> list[int]:
        table = tables(connection).metadata
        first = dialect.reserve_ids(connection, table, 3)
        names = ("id", "external_id", "train", "state", "created_at")
        now = store.now(connection)
        bulk_copy(connection, table, names, [(one, "x", "t", "pending", now) for one in first])
        return [*first, *dialect.reserve_ids(connection, table, 2)]

    ids = store.run(reserve_twice)

    assert len(set(ids)) == 5
    assert ids == sorted(ids)


def test_an_upsert_replaces_what_is_there(store: Store) -> None:
    def set_value(connection: Connection, value: str) -> str:
        setting = tables(connection).setting
        statement = dialect.insert(connection, setting).values(
            name="a", value=value, updated_at=store.now(connection)
        )
        connection.execute(
            statement.on_conflict_do_update(index_elements=["name"], set_={"value": statement.excluded.value})
        )
        return connection.execute(select(setting.c.value)).scalar_one()

    assert store.run(set_value, "1") == "1"
    assert store.run(set_value, "2") == "2"
