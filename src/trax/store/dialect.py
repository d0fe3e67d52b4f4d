"""Differences between PostgreSQL and SQLite. Everything else is one expression for both.

Locks last as long as the transaction, so they work behind a connection pooler. On PostgreSQL they are locks
on empty tables (`locks` in `schema/operations.py`). On SQLite the write transaction itself is the lock: it
begins IMMEDIATE, and there is only one at a time.
"""

from __future__ import annotations

import json
import math
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import to_json
from sqlalchemy import Float, Text, bindparam, cast, column, func, literal_column, select, true

from trax.clock import utc_now
from trax.store.types import SQLITE, BigId, Json, Utc, searchable, utc_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import BindParameter, ColumnElement, Connection, FromClause, Select, Table
    from sqlalchemy.dialects import postgresql, sqlite
    from sqlalchemy.types import TypeEngine

    Insert = postgresql.Insert | sqlite.Insert

MIGRATION_LOCK: Final = 0x7472_6178_0003
CHANNEL: Final = "trax"
MAX_DOCUMENT_CHARACTERS: Final = 32_000_000
"""The maximum for a document of several rows; a single row may be longer."""
BROAD_PLAN_SETTINGS: Final = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit")
"""Planner settings for broad reads, off on our PostgreSQL connections unless a transaction allows them."""


def is_sqlite(connection: Connection) -> bool:
    return connection.dialect.name == SQLITE


def now(connection: Connection) -> datetime:
    """The database's clock. SQLite's has only milliseconds and is this machine's, so Python reads it."""
    if is_sqlite(connection):
        return utc_now()
    return connection.execute(select(func.clock_timestamp(type_=Utc))).scalar_one()


@cache
def leader_lock(dialect: str) -> Select[Any, Any]:
    """Select whether this server got the leader lock, and the current time.

    One server gets it, the others do not wait. On SQLite the transaction is the lock.
    """
    is_leader = true() if dialect == SQLITE else func.trax.try_lock("leader")
    return select(is_leader, now_parameter(dialect))


def take_leader_lock(connection: Connection) -> None:
    """Wait until no other server manages or seeds manifests."""
    if not is_sqlite(connection):
        connection.execute(select(func.trax.take_lock("leader")))


def gate_lock(dialect: str) -> list[tuple[Select[Any, Any, Any, Any, Any], dict[str, Any]]]:
    """The statement that waits for the gate lock; none on SQLite, where the transaction is the lock.

    A separate statement: counts under the lock need a snapshot taken after the wait.

    It also sets planner settings. JIT would cost 50 ms for a read of 1 ms. A bitmap scan never clears the
    dead index entries that every finished run leaves. And with many active runs or queued entries, the
    planner would choose a sequential scan over the whole history. With only index scans left, the plan does
    not depend on the parameters: it is kept, since planning takes longer than admitting a few entries.
    """
    return [] if dialect == SQLITE else [(_gate_lock(), {})]


def take_gate_lock(connection: Connection) -> None:
    for step in gate_lock(connection.dialect.name):
        connection.execute(*step)


@cache
def _gate_lock() -> Select[Any, Any, Any, Any, Any]:
    return select(
        func.set_config("jit", "off", True),  # noqa: FBT003
        func.set_config("enable_bitmapscan", "off", True),  # noqa: FBT003
        func.set_config("enable_seqscan", "off", True),  # noqa: FBT003
        func.set_config("plan_cache_mode", "force_generic_plan", True),  # noqa: FBT003
        func.trax.take_gate_lock(),
    )


def allow_broad_plans(connection: Connection) -> None:
    """Let PostgreSQL use any plan in this transaction: what follows reads much of a table."""
    if not is_sqlite(connection):
        connection.execute(_enable_broad_plans())


@cache
def _enable_broad_plans() -> Select[Any]:
    return select(*(func.set_config(name, "on", True) for name in BROAD_PLAN_SETTINGS))  # noqa: FBT003


def seconds_between(dialect: str, earlier: ColumnElement[Any], later: Any) -> ColumnElement[Any]:
    """Seconds between two times, to 0.1 ms; where more precision matters, Python compares again."""
    if dialect == SQLITE:
        return (func.julianday(later) - func.julianday(earlier)) * 86_400
    return func.extract("epoch", later - earlier)


def later_of(dialect: str, one: ColumnElement[Any], other: ColumnElement[Any]) -> ColumnElement[Any]:
    """The later of two times, neither of which may be NULL: then the dialects differ."""
    return (func.max if dialect == SQLITE else func.greatest)(one, other, type_=Utc)


def start_of_span(dialect: str, column: ColumnElement[Any], span: str) -> ColumnElement[Any]:
    """Truncate a time to its minute or hour."""
    if dialect == SQLITE:
        length, suffix = (17, "00.000000Z") if span == "minute" else (14, "00:00.000000Z")
        return (func.substr(column, 1, length, type_=Text) + literal_column(f"'{suffix}'")).cast(Utc)
    return func.date_trunc(literal_column(f"'{span}'"), column, literal_column("'UTC'"), type_=Utc)


def use_one_snapshot(connection: Connection) -> None:
    """Read all of this transaction from one snapshot, as SQLite always does. Must be its first statement."""
    if not is_sqlite(connection):
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")


def limit_statement_time(connection: Connection, *, seconds: float) -> None:
    """Set the statement timeout of this transaction. SQLite has none; its reads are bounded."""
    if not is_sqlite(connection):
        milliseconds = str(int(seconds * 1000))
        connection.execute(select(func.set_config("statement_timeout", milliseconds, True)))  # noqa: FBT003


def lift_limits(connection: Connection) -> None:
    """Remove the time limits of this transaction, for long work or lock waits."""
    if not is_sqlite(connection):
        limit_statement_time(connection, seconds=0)  # 0 means no limit to PostgreSQL
        driver: Any = connection.connection.driver_connection
        driver.max_wait_seconds = math.inf  # until it returns to the pool


def take_totals_lock(connection: Connection) -> None:
    """Wait until no other server updates the totals of ended runs."""
    if not is_sqlite(connection):
        connection.execute(select(func.trax.take_lock("totals")))


def now_parameter(dialect: str) -> ColumnElement[datetime]:
    """The parameter `now`; on PostgreSQL None means the time of the statement."""
    parameter = bindparam("now", type_=Utc)
    return parameter if dialect == SQLITE else func.coalesce(parameter, func.statement_timestamp(), type_=Utc)


def time_before_now(dialect: str, parameter: str) -> ColumnElement[datetime]:
    """The time that lies a span before `now`; `time_before_now_parameter` gives the parameter's value."""
    if dialect == SQLITE:
        return bindparam(parameter, type_=Utc)
    return now_parameter(dialect) - func.make_interval(0, 0, 0, 0, 0, 0, bindparam(parameter, type_=Float))


def time_before_now_parameter(dialect: str, now: datetime | None, span: timedelta) -> datetime | float:
    """The parameter of `time_before_now`: on SQLite the time itself, on PostgreSQL the span in seconds."""
    return now - span if dialect == SQLITE and now is not None else span.total_seconds()


def take_migration_lock(connection: Connection, version_table: str | None) -> None:
    """Wait until no other process migrates. Before the first migration there is no table to lock."""
    if is_sqlite(connection):
        return
    if version_table is None:
        connection.execute(select(func.pg_advisory_xact_lock(MIGRATION_LOCK)))
    else:
        connection.exec_driver_sql(f"LOCK TABLE {version_table} IN SHARE UPDATE EXCLUSIVE MODE")


def try_cleanup_lock(connection: Connection) -> bool:
    """Try to take the cleanup lock; True for one server at a time, since two could deadlock."""
    if is_sqlite(connection):
        return True
    return connection.execute(select(func.trax.try_lock("cleanup"))).scalar_one()


def take_settings_lock(connection: Connection) -> None:
    """Wait until no other operator edits settings: they are validated and written together."""
    if not is_sqlite(connection):
        connection.execute(select(func.trax.take_lock("settings")))


def notify(connection: Connection, topic: str) -> None:
    """Notify other processes if and when this transaction commits. On SQLite they poll."""
    if not is_sqlite(connection):
        connection.execute(*notification(topic))


def notification(payload: str) -> tuple[Select[Any], dict[str, str]]:
    """The NOTIFY statement and its parameters."""
    return _NOTIFY, {"payload": payload}


def notify_expression() -> ColumnElement[Any]:
    """The NOTIFY call with the parameter `payload`, as an expression in a statement."""
    return func.pg_notify(literal_column(f"'{CHANNEL}'"), bindparam("payload", type_=Text))


_NOTIFY: Final = select(notify_expression())


def insert(connection: Connection, table: Table) -> Insert:
    """An insert with `on_conflict_do_update`: the same API in both dialects, from two modules."""
    from sqlalchemy.dialects import sqlite

    if is_sqlite(connection):
        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql

    return postgresql.insert(table)


def document(rows: Iterable[Mapping[str, Any]]) -> str:
    """Encode many rows as one JSON parameter.

    Times become text. JSON columns are sent as strings, because SQLite would unquote a JSON scalar.
    """
    return json.dumps(list(rows), default=utc_text, ensure_ascii=False, separators=(",", ":"))


def documents(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Like `document`, in as many parts as are needed: long texts of many rows do not fit in one."""
    encoded = document(rows)
    if len(encoded) <= MAX_DOCUMENT_CHARACTERS or len(rows) == 1:
        yield encoded
        return
    del encoded
    half = len(rows) // 2
    yield from documents(rows[:half])
    yield from documents(rows[half:])


def name_document(column: str, names: Iterable[str]) -> str:
    """Encode names to look up, as rows of one column."""
    return document({column: searchable(name)} for name in names)


def quick_document(dialect: str, rows: Iterable[Mapping[str, Any]]) -> str:
    """Like `document`, at a third of the cost on PostgreSQL; SQLite needs times in a sortable format."""
    return document(rows) if dialect == SQLITE else json_array(list(rows))


def json_array(values: Sequence[Any]) -> str:
    """Encode values without times as one JSON array, quickly."""
    try:
        return to_json(values).decode()
    except ValueError:  # a lone surrogate: let the database report the error
        return json.dumps(values, default=utc_text, ensure_ascii=False, separators=(",", ":"))


def rows_of(dialect: str, parameter: str, columns: Mapping[str, TypeEngine[Any]]) -> FromClause:
    """The rows of a document parameter, as a table to select from."""
    bound = bindparam(parameter, type_=Text)
    return (_sqlite_rows if dialect == SQLITE else _postgresql_rows)(bound, columns)


def among(connection: Connection, column: ColumnElement[int], parameter: str = "ids") -> ColumnElement[bool]:
    """The condition that a column is among the ids of an `id_document` parameter."""
    return column.in_(select(ids_of(connection.dialect.name, parameter).c.id))


def id_document(ids: Iterable[int]) -> str:
    return f"[{','.join(map(str, ids))}]"


def ids_of(dialect: str, parameter: str = "ids") -> FromClause:
    """The ids of an `id_document` parameter, as rows of one column `id`; much cheaper than `rows_of`."""
    bound = bindparam(parameter, type_=Text)
    if dialect == SQLITE:
        each = func.json_each(bound).table_valued("value", name="each")
        return select(each.c.value.label("id")).subquery("given")
    return select(func.unnest(id_array(parameter)).label("id")).subquery("given")


def id_array(parameter: str, kind: TypeEngine[Any] = BigId) -> ColumnElement[Any]:
    """An `id_document` parameter as an array of PostgreSQL."""
    from sqlalchemy.dialects.postgresql import ARRAY

    bound = bindparam(parameter, type_=Text)
    return cast(func.translate(bound, literal_column("'[]'"), literal_column("'{}'")), ARRAY(kind))


def _sqlite_rows(bound: BindParameter[str], columns: Mapping[str, TypeEngine[Any]]) -> FromClause:
    each = func.json_each(bound).table_valued("value", name="each")
    fields = [
        func.json_extract(each.c.value, f"$.{name}", type_=kind).label(name) for name, kind in columns.items()
    ]
    return select(*fields).select_from(each).subquery("given")


def _postgresql_rows(bound: BindParameter[str], columns: Mapping[str, TypeEngine[Any]]) -> FromClause:
    raw_types = {name: Text() if _is_json(kind) else kind for name, kind in columns.items()}
    raw = (
        func.json_to_recordset(cast(bound, Json))
        .table_valued(*(column(name, kind) for name, kind in raw_types.items()), name="raw")
        .render_derived(with_types=True)
    )
    fields = [
        (cast(raw.c[name], Json) if _is_json(kind) else raw.c[name]).label(name)
        for name, kind in columns.items()
    ]
    return select(*fields).subquery("given")


def _is_json(kind: TypeEngine[Any]) -> bool:
    return isinstance(kind, Json)


@cache
def select_now(dialect: str) -> Select[Any]:
    """Select the current time."""
    return select(now_parameter(dialect))


def last_id(connection: Connection, table: Table) -> int:
    """The highest id that a row of a table ever had, or that was reserved for one."""
    if is_sqlite(connection):
        query = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = ?"
        return connection.exec_driver_sql(query, (table.name,)).scalar_one()
    from sqlalchemy.dialects import postgresql

    sequence = func.pg_get_serial_sequence(f"{table.schema}.{table.name}", "id")
    last = func.pg_sequence_last_value(cast(sequence, postgresql.REGCLASS))
    return connection.execute(select(func.coalesce(last, 0))).scalar_one()


def reserve_ids(connection: Connection, table: Table, count: int) -> list[int]:
    """Reserve ids for rows inserted by COPY, which returns none."""
    if is_sqlite(connection):
        last = last_id(connection, table)
        return list(range(last + 1, last + 1 + count))
    numbers = func.generate_series(1, count).table_valued()
    together = select(func.array_agg(next_id(table))).select_from(numbers)
    return list(connection.execute(together).scalar_one())


def next_id(table: Table) -> ColumnElement[int]:
    """The next id of a table on PostgreSQL, evaluated per row."""
    # In a subquery, the sequence is looked up once and not for each row.
    sequence = select(func.pg_get_serial_sequence(f"{table.schema}.{table.name}", "id")).scalar_subquery()
    return func.nextval(sequence, type_=BigId)
