"""How long PostgreSQL may take, and what becomes of a store whose database host answers no more."""

from __future__ import annotations

import asyncio
import gc
import inspect
import math
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import Pipeline
from sqlalchemy import TextClause, make_url, text
from tests.support.backends import cut_off
from tests.support.chaos_proxy import proxy_to

from trax import Trax
from trax.errors import InvalidSetting, StoreUnavailable
from trax.store import Store, dialect, postgresql
from trax.store import store as store_module
from trax.store.engine import Timeouts, open_engine
from trax.store.listen import open_connection
from trax.store.pipeline import commit_together
from trax.store.postgresql import session_name
from trax.store.queue import work_queue
from trax.store.url import parse_url

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from sqlalchemy import Connection
    from tests.support.chaos_proxy import Proxy

ONE: tuple[TextClause, dict[str, Any]] = (text("SELECT 1"), {})
SHORT = Timeouts(connect_seconds=2, network_seconds=1, statement_seconds=1)


@pytest.fixture
def proxy(postgres_url: str) -> Generator[Proxy]:
    with proxy_to(postgres_url) as proxy:
        yield proxy


def setting(name: str) -> Callable[[Connection], str]:
    return lambda connection: connection.execute(text(f"SHOW {name}")).scalar_one()


def driver(connection: Connection) -> Any:
    return connection.connection.driver_connection


def options(connection: Connection) -> dict[str, str]:
    """What libpq was told."""
    return driver(connection).info.get_parameters()


def test_a_host_that_answers_no_more_is_a_passing_fault_within_the_limits(proxy: Proxy) -> None:
    with closing(Store(proxy.url, timeouts=SHORT)) as store:
        store.read(work_queue.get, 1)
        proxy.is_black_hole = True

        with pytest.raises(StoreUnavailable, match=r"no response for 2\.\d s"):
            store.read(work_queue.get, 1)  # on the connection that it has
        with pytest.raises(StoreUnavailable, match="timeout"):
            store.read(work_queue.get, 1)  # and on a new one


def test_a_check_of_an_idle_connection_lasts_no_longer_than_the_network_timeout(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "IDLE_SECONDS", 0)
    with closing(Store(proxy.url, timeouts=SHORT._replace(statement_seconds=None))) as store:
        store.read(work_queue.get, 1)
        proxy.is_black_hole = True

        with pytest.raises(StoreUnavailable):
            store.read(work_queue.get, 1)


def test_a_loss_in_one_lane_is_a_warning_to_the_other(postgres_url: str) -> None:
    with closing(Store(postgres_url)) as store:
        for lane in (store, store.engine_lane):
            lane.read(work_queue.get, 1)
        cut_off(postgres_url)

        with pytest.raises(StoreUnavailable):
            store.engine_lane.read(work_queue.get, 1)
        assert store.read(work_queue.get, 1) is None


def test_a_silent_listening_connection_fails_within_the_network_timeout(proxy: Proxy) -> None:
    def ask() -> None:
        with open_connection(proxy.url, SHORT) as line:
            proxy.is_black_hole = True
            line.execute("SELECT 1")

    with pytest.raises(StoreUnavailable, match="no response"):
        ask()


def test_prepare_statements_off_applies_to_the_listening_connection(postgres_url: str) -> None:
    with open_connection(f"{postgres_url}?prepare_statements=off") as line:
        assert line.execute("SELECT 1").fetchall() == [(1,)]


async def test_closing_does_not_wait_for_hanging_calls(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "CLOSE_SECONDS", 0.5)
    store = Store(proxy.url, timeouts=Timeouts(statement_seconds=None))
    await store.ask(work_queue.get, 1)
    await store.engine_lane.ask(work_queue.get, 1)
    proxy.is_black_hole = True
    asking = [asyncio.create_task(one.ask(work_queue.get, 1)) for one in (store, store.engine_lane)]
    await asyncio.sleep(0)

    async with asyncio.timeout(30):
        await asyncio.to_thread(store.close)
        answers = await asyncio.gather(*asking, return_exceptions=True)

    assert [type(answer) for answer in answers] == [StoreUnavailable, StoreUnavailable]


async def test_calls_that_had_not_started_when_the_store_was_closed_fail(url: str) -> None:
    store = Store(url, pool_size=1)
    begun, go_on = asyncio.Event(), asyncio.Event()
    home = asyncio.get_running_loop()

    def hold(_connection: Connection) -> None:
        home.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), home).result(30)

    holding = [asyncio.create_task(store.ask(hold)) for _ in range(2)]
    await begun.wait()
    late = asyncio.create_task(store.ask(work_queue.get, 1))
    await asyncio.sleep(0)
    closing_store = asyncio.create_task(asyncio.to_thread(store.close))

    with pytest.raises(StoreUnavailable, match="was closed"):
        await late
    go_on.set()
    await asyncio.gather(*holding, closing_store)


async def test_a_process_that_is_to_end_waits_for_no_long_answer(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "LAST_SECONDS", 0.2)
    app = Trax(proxy.url, database_statement_timeout=None)
    store = await app.context.store.open()
    proxy.is_black_hole = True
    asking = asyncio.create_task(store.ask(work_queue.get, 1))
    await asyncio.sleep(0)

    async with asyncio.timeout(30):
        await app.stop()

        with pytest.raises(StoreUnavailable, match="no response"):
            await asking


def test_the_server_ends_a_statement_that_exceeds_its_timeout(postgres_url: str) -> None:
    def sleep(connection: Connection) -> None:
        connection.execute(text("SELECT pg_sleep(30)"))

    timeouts = Timeouts(network_seconds=60, statement_seconds=1)
    with (
        closing(Store(postgres_url, timeouts=timeouts)) as store,
        pytest.raises(StoreUnavailable, match="statement timeout"),
    ):
        store.run(sleep)


def test_lifted_limits_apply_to_one_transaction(postgres_url: str) -> None:
    def lifted(connection: Connection) -> tuple[str, float]:
        dialect.lift_limits(connection)
        return setting("statement_timeout")(connection), driver(connection).max_wait_seconds

    with closing(Store(postgres_url, pool_size=1)) as store:
        assert store.run(setting("statement_timeout")) == "1min"
        assert store.run(lifted) == ("0", math.inf)
        assert store.run(setting("statement_timeout")) == "1min"
        assert store.run(lambda connection: driver(connection).max_wait_seconds) is None


def test_a_vanished_host_is_noticed_by_the_network_in_time(postgres_url: str) -> None:
    with closing(Store(postgres_url)) as store:
        said = store.run(options)
    numbers = {name: int(said[name]) for name in said if name.startswith(("keepalives", "tcp_", "connect_"))}

    assert numbers["keepalives"] == 1
    assert numbers["tcp_user_timeout"] == 20_000
    assert numbers["connect_timeout"] == 10
    last = numbers["keepalives_interval"] * numbers["keepalives_count"]
    assert 10 <= numbers["keepalives_idle"] + last <= 20


def test_options_of_the_url_override_the_timeouts(postgres_url: str) -> None:
    given = "tcp_user_timeout=7000&keepalives_idle=3&connect_timeout=4&options=-c%20statement_timeout%3D5s"
    with closing(Store(f"{postgres_url}?{given}")) as store:
        said = store.run(options)
        assert store.run(setting("statement_timeout")) == "5s"

    assert (said["tcp_user_timeout"], said["keepalives_idle"], said["connect_timeout"]) == ("7000", "3", "4")


def test_no_timeout_is_set_in_a_session_shared_by_a_pooler(postgres_url: str) -> None:
    with closing(Store(f"{postgres_url}?prepare_statements=off")) as store:
        assert store.run(setting("statement_timeout")) == "0"


def test_the_settings_of_an_app_count(postgres_url: str) -> None:
    app = Trax(postgres_url, database_connect_timeout=3, database_network_timeout=6)
    with closing(app):
        assert app.context.store.open_blocking().timeouts == Timeouts(3, 6, 60)
    with pytest.raises(InvalidSetting, match="database_connect_timeout"):
        Trax(postgres_url, database_connect_timeout=0.5)
    with pytest.raises(InvalidSetting, match="database_network_timeout"):
        Trax(postgres_url, database_network_timeout=0)


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("", "trax"),
        ("?application_name=trax", "trax"),
        ("?application_name=shop", "shop (trax)"),
        ("?application_name=caf%C3%A9", "caf? (trax)"),
        (f"?application_name={'x' * 80}", "x" * 56 + " (trax)"),
    ],
)
def test_a_session_is_recognized_under_any_application_name(postgres_url: str, query: str, name: str) -> None:
    with closing(Store(postgres_url + query)) as store:
        assert store.run(setting("application_name")) == name == session_name(make_url(postgres_url + query))


def test_limits_leave_a_busy_connection_alone(postgres_url: str) -> None:
    """What keeps sending is not silent, however long it takes in all."""
    with postgresql.PostgresqlConnection.connect(postgres_url) as connection:
        connection.wait_limits = postgresql.WaitLimits(Timeouts(network_seconds=0.3, statement_seconds=0.3))
        slow = "SELECT repeat('x', 10000), pg_sleep(0.01) FROM generate_series(1, 100)"
        rows = connection.execute(slow).fetchall()

        assert len(rows) == 100
        with pytest.raises(psycopg.OperationalError, match="no response"):
            connection.execute("SELECT pg_sleep(30)")
        assert connection.closed


def test_a_connection_whose_first_statements_fail_is_not_left_open(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []

    def fail(connection: Any, _record: Any, *, limits_statements: bool) -> None:
        assert limits_statements
        opened.append(connection.pgconn)
        raise psycopg.OperationalError("cut off")

    monkeypatch.setattr("trax.store.postgresql.prepare_session", fail)
    engine = open_engine(parse_url(postgres_url))
    with pytest.raises(Exception, match="cut off"):
        engine.connect()
    engine.dispose()
    gc.collect()

    assert [each.status for each in opened] == [psycopg.pq.ConnStatus.BAD]


def test_a_wait_on_a_lost_connection_leaves_nothing_to_fail_later(postgres_url: str) -> None:
    def steps() -> Any:
        try:
            yield 1
        finally:
            raise psycopg.OperationalError("no connection to clean up")

    connection, waiting = postgresql.PostgresqlConnection.connect(postgres_url), steps()
    connection.pgconn.finish()

    with pytest.raises(psycopg.OperationalError):
        connection.wait(waiting)

    assert inspect.getgeneratorstate(waiting) == inspect.GEN_CLOSED, "it would fail when it is collected"


def test_a_session_that_ends_in_the_middle_of_a_pipeline_is_one_error_and_no_traceback(
    postgres_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's last words have arrived, the end of the connection has not: a pipeline cannot be left."""

    def read_and_commit(connection: Connection) -> Any:
        connection.execute(ONE[0])
        return commit_together(connection, ONE, ONE)

    def stop(_pipeline: Any) -> Any:
        raise psycopg.errors.AdminShutdown("terminating connection")

    def refuse(pipeline: Any, _error: Any) -> None:
        pipeline.level -= 1
        raise psycopg.OperationalError("cannot exit pipeline mode while busy")

    with closing(Store(postgres_url)) as store:
        store.read(work_queue.get, 1)
        with monkeypatch.context() as patch:
            patch.setattr(Pipeline, "_exit_gen", stop)
            patch.setattr(Pipeline, "_exit", refuse)
            with pytest.raises(StoreUnavailable):
                store.run(read_and_commit)

        assert store.run(read_and_commit) == [[(1,)], [(1,)]]
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
