"""What truly differs between PostgreSQL and SQLite, in one place. Everything else is one expression for both.

Locks last as long as the transaction, so that a pooler between us and PostgreSQL does no harm. In SQLite
the write transaction itself is the lock: it begins IMMEDIATE, and there is only one at a time.
"""

from __future__ import annotations

import json
import math
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import to_json
from sqlalchemy import Float, Text, bindparam, cast, column, func, literal_column, select, true
from sqlalchemy.dialects import postgresql, sqlite

from trax.clock import utc_now
from trax.store.text import searchable
from trax.store.types import SQLITE, BigId, Json, Utc, utc_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime, timedelta

    from sqlalchemy import BindParameter, ColumnElement, Connection, FromClause, Select, Table
    from sqlalchemy.types import TypeEngine

LEADER_LOCK: Final = 0x7472_6178_0001
GATE_LOCK: Final = 0x7472_6178_0002
MIGRATION_LOCK: Final = 0x7472_6178_0003
SETTINGS_LOCK: Final = 0x7472_6178_0004
CLEANUP_LOCK: Final = 0x7472_6178_0005
TALLY_LOCK: Final = 0x7472_6178_0006
CHANNEL: Final = "trax"
WIDE_WAYS: Final = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit")
"""Ways to read much of a table, which our connections to PostgreSQL leave out unless they are asked to."""

Insert = postgresql.Insert | sqlite.Insert


def is_sqlite(connection: Connection) -> bool:
    return connection.dialect.name == SQLITE


def now(connection: Connection) -> datetime:
    """The database's clock. SQLite's has whole milliseconds and is this machine's, so Python reads it."""
    if is_sqlite(connection):
        return utc_now()
    return connection.execute(select(func.clock_timestamp(type_=Utc))).scalar_one()


@cache
def leader_lock(dialect: str) -> Select[Any, Any]:
    """Asks whether this server may manage manifests in this moment, and what `now` is.

    One may, and the others do not wait. In SQLite the transaction is the lock.
    """
    leads = true() if dialect == SQLITE else func.pg_try_advisory_xact_lock(LEADER_LOCK)
    return select(leads, moment(dialect))


def take_leader_lock(connection: Connection) -> None:
    """Wait until no other server manages or seeds manifests."""
    if not is_sqlite(connection):
        connection.execute(select(func.pg_advisory_xact_lock(LEADER_LOCK)))


def gate_lock(connection: Connection) -> list[tuple[Select[Any, Any, Any, Any], dict[str, Any]]]:
    """The step that waits for the gate; in SQLite the transaction has done so already.

    A statement of its own: what is counted under the lock must be seen by a snapshot taken after the wait.
    The switches ride along. The head-of-group read does a millisecond of work and would pay fifty for
    compiling it; counting by bitmap never clears the dead entries that every finish leaves behind; and with
    many runs under way or many entries waiting, the planner would look for them among all there ever were.
    """
    return [] if is_sqlite(connection) else [(_gate_lock(), {})]


def take_gate_lock(connection: Connection) -> None:
    for step in gate_lock(connection):
        connection.execute(*step)


@cache
def _gate_lock() -> Select[Any, Any, Any, Any]:
    return select(
        func.set_config("jit", "off", True),  # noqa: FBT003
        func.set_config("enable_bitmapscan", "off", True),  # noqa: FBT003
        func.set_config("enable_seqscan", "off", True),  # noqa: FBT003
        func.pg_advisory_xact_lock(GATE_LOCK),
    )


def plan_freely(connection: Connection) -> None:
    """Let this transaction read widely: what follows looks at much of a table, and PostgreSQL knows how."""
    if not is_sqlite(connection):
        connection.execute(_all_ways())


@cache
def _all_ways() -> Select[Any]:
    return select(*(func.set_config(name, "on", True) for name in WIDE_WAYS))  # noqa: FBT003


def seconds_between(dialect: str, earlier: ColumnElement[Any], later: Any) -> ColumnElement[Any]:
    """How much time has passed, to a tenth of a millisecond; where that matters, Python compares again."""
    if dialect == SQLITE:
        return (func.julianday(later) - func.julianday(earlier)) * 86_400
    return func.extract("epoch", later - earlier)


def begun_at(dialect: str, column: ColumnElement[Any], span: str) -> ColumnElement[Any]:
    """When the minute or hour of a moment began."""
    if dialect == SQLITE:
        kept, rest = (17, "00.000000Z") if span == "minute" else (14, "00:00.000000Z")
        return (func.substr(column, 1, kept, type_=Text) + literal_column(f"'{rest}'")).cast(Utc)
    return func.date_trunc(literal_column(f"'{span}'"), column, literal_column("'UTC'"), type_=Utc)


def see_one_moment(connection: Connection) -> None:
    """Let all that this transaction reads be of one moment. Its first statement; SQLite does so anyway."""
    if not is_sqlite(connection):
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")


def take_no_longer(connection: Connection, *, seconds: float) -> None:
    """Give up what takes longer, in this transaction. SQLite has no such word; what it reads is bounded."""
    if not is_sqlite(connection):
        milliseconds = str(int(seconds * 1000))
        connection.execute(select(func.set_config("statement_timeout", milliseconds, True)))  # noqa: FBT003


def lift_limits(connection: Connection) -> None:
    """Let this transaction take as long as it needs: what follows may be much work, or wait for others."""
    if not is_sqlite(connection):
        take_no_longer(connection, seconds=0)  # PostgreSQL's word for no limit
        driver: Any = connection.connection.driver_connection
        driver.wanted_seconds = math.inf  # until it goes back to the pool


def take_tally_lock(connection: Connection) -> None:
    """Wait until no other server adds up what has ended."""
    if not is_sqlite(connection):
        connection.execute(select(func.pg_advisory_xact_lock(TALLY_LOCK)))


def moment(dialect: str) -> ColumnElement[datetime]:
    """The parameter `now`; PostgreSQL puts the moment of the statement where it is None."""
    given = bindparam("now", type_=Utc)
    return given if dialect == SQLITE else func.coalesce(given, func.statement_timestamp(), type_=Utc)


def so_long_before(dialect: str, parameter: str) -> ColumnElement[datetime]:
    """The moment that lies a span before `now`; `span_before` makes the parameter."""
    if dialect == SQLITE:
        return bindparam(parameter, type_=Utc)
    return moment(dialect) - func.make_interval(0, 0, 0, 0, 0, 0, bindparam(parameter, type_=Float))


def span_before(dialect: str, now: datetime | None, span: timedelta) -> datetime | float:
    """SQLite does not count with moments, and there `now` is known."""
    return now - span if dialect == SQLITE and now is not None else span.total_seconds()


def take_migration_lock(connection: Connection) -> None:
    if not is_sqlite(connection):
        connection.execute(select(func.pg_advisory_xact_lock(MIGRATION_LOCK)))


def try_cleanup_lock(connection: Connection) -> bool:
    """True for the one server that may delete old records in this moment; two could block each other."""
    if is_sqlite(connection):
        return True
    return connection.execute(select(func.pg_try_advisory_xact_lock(CLEANUP_LOCK))).scalar_one()


def take_settings_lock(connection: Connection) -> None:
    """Wait until no other operator edits: what is checked together must be written together."""
    if not is_sqlite(connection):
        connection.execute(select(func.pg_advisory_xact_lock(SETTINGS_LOCK)))


def notify(connection: Connection, topic: str) -> None:
    """Wake the loops of other processes, if and when this transaction commits. SQLite has only the poll."""
    if not is_sqlite(connection):
        connection.execute(*notification(topic))


def notification(payload: str) -> tuple[Select[Any], dict[str, str]]:
    """The statement that tells whoever listens, and its parameters."""
    return _NOTIFY, {"payload": payload}


def notifying() -> ColumnElement[Any]:
    """Tells whoever listens the parameter `payload`, as part of a statement."""
    return func.pg_notify(literal_column(f"'{CHANNEL}'"), bindparam("payload", type_=Text))


_NOTIFY: Final = select(notifying())


def insert(connection: Connection, table: Table) -> Insert:
    """An insert that knows `on_conflict_do_update`: the same words in both dialects, from two modules."""
    return sqlite.insert(table) if is_sqlite(connection) else postgresql.insert(table)


def document(rows: Iterable[Mapping[str, Any]]) -> str:
    """Many rows as one parameter.

    Moments become text, and JSON columns travel as strings, so that SQLite, which would unquote a JSON
    scalar, gives back exactly what was put in.
    """
    return json.dumps(list(rows), default=utc_text, ensure_ascii=False, separators=(",", ":"))


def name_document(column: str, names: Iterable[str]) -> str:
    """Names to look up, as rows of one column."""
    return document({column: searchable(name)} for name in names)


def quick_document(dialect: str, rows: Iterable[Mapping[str, Any]]) -> str:
    """The same at a third of the cost, where PostgreSQL reads it; SQLite sorts moments by their spelling."""
    if dialect == SQLITE:
        return document(rows)
    rows = list(rows)
    try:
        return to_json(rows).decode()
    except ValueError:  # half of a surrogate pair: let the database say what is wrong with it
        return document(rows)


def rows_of(dialect: str, parameter: str, columns: Mapping[str, TypeEngine[Any]]) -> FromClause:
    """The rows of a document, as something to select from."""
    bound = bindparam(parameter, type_=Text)
    return (_sqlite_rows if dialect == SQLITE else _postgresql_rows)(bound, columns)


def among(connection: Connection, column: ColumnElement[int], parameter: str = "ids") -> ColumnElement[bool]:
    """Whether a column is one of any number of ids, given as `id_document` under the parameter's name."""
    return column.in_(select(ids_of(connection.dialect.name, parameter).c.id))


def id_document(ids: Iterable[int]) -> str:
    return f"[{','.join(map(str, ids))}]"


def ids_of(dialect: str, parameter: str = "ids") -> FromClause:
    """The ids of an `id_document`, as rows of one column `id`: at a fraction of what `rows_of` would cost."""
    bound = bindparam(parameter, type_=Text)
    if dialect == SQLITE:
        each = func.json_each(bound).table_valued("value", name="each")
        return select(each.c.value.label("id")).subquery("given")
    array = func.translate(bound, literal_column("'[]'"), literal_column("'{}'"))
    return select(func.unnest(cast(array, postgresql.ARRAY(BigId))).label("id")).subquery("given")


def _sqlite_rows(bound: BindParameter[str], columns: Mapping[str, TypeEngine[Any]]) -> FromClause:
    each = func.json_each(bound).table_valued("value", name="each")
    fields = [
        func.json_extract(each.c.value, f"$.{name}", type_=kind).label(name) for name, kind in columns.items()
    ]
    return select(*fields).select_from(each).subquery("given")


def _postgresql_rows(bound: BindParameter[str], columns: Mapping[str, TypeEngine[Any]]) -> FromClause:
    carried = {name: Text() if _is_json(kind) else kind for name, kind in columns.items()}
    raw = (
        func.json_to_recordset(cast(bound, Json))
        .table_valued(*(column(name, kind) for name, kind in carried.items()), name="raw")
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
def reading_moment(dialect: str) -> Select[Any]:
    """Asks what `now` is."""
    return select(moment(dialect))


def reserve_ids(connection: Connection, table: Table, count: int) -> list[int]:
    """Ids nobody else will get, for rows that are copied in and cannot be asked for theirs."""
    if is_sqlite(connection):
        query = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = ?"
        last = connection.exec_driver_sql(query, (table.name,)).scalar_one()
        return list(range(last + 1, last + 1 + count))
    numbers = func.generate_series(1, count).table_valued()
    together = select(func.array_agg(next_id(table))).select_from(numbers)
    return list(connection.execute(together).scalar_one())


def next_id(table: Table) -> ColumnElement[int]:
    """The next id of a table in PostgreSQL, one for each row that asks."""
    # Asked for in a subquery, the sequence is looked up once and not for each row.
    sequence = select(func.pg_get_serial_sequence(f"{table.schema}.{table.name}", "id")).scalar_subquery()
    return func.nextval(sequence, type_=BigId)
