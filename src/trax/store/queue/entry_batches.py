"""Insert many entries that differ only in external id and input, or one, with a single statement."""

from __future__ import annotations

import json
from datetime import UTC
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import (
    Boolean,
    Float,
    Integer,
    SmallInteger,
    Text,
    bindparam,
    case,
    cast,
    func,
    insert,
    literal_column,
    select,
    true,
)

from trax.events import Topic
from trax.records.states import QueueStatus
from trax.store.announce import announce, notification_payload
from trax.store.dialect import notify_expression, now_parameter
from trax.store.schema import tables_for
from trax.store.types import SQLITE, BigId, ByteOrderText, JsonText, Utc, sql_literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, FromClause

    from trax.store.pipeline import BoundStatement


MAX_ROWS: Final = 10_000
MAX_CHARACTERS: Final = 8_000_000
"""One statement inserts no more rows, and no more text except of a single row."""

SHARED_COLUMNS: Final = {
    "train": ByteOrderText,
    "origin": ByteOrderText,
    "priority": SmallInteger,
    "group_id": BigId,
    "group_priority": SmallInteger,
    "retry": JsonText,
    "timeout_seconds": Float,
    "scheduled_at": Utc,
    "ready": Boolean,
}
"""The columns that the entries of a batch may share; without `ready`, they are."""

RECORD_END: Final = "\x1e"
FIELD_END: Final = "\x1f"


class InsertedBatch(NamedTuple):
    """The ids of the inserted entries, in the order given, and their `created_at`."""

    ids: list[int]
    created_at: datetime


def is_one_statement(inputs: Mapping[str, str]) -> bool:
    """Whether one statement can insert them."""
    return len(inputs) <= MAX_ROWS and sum(map(len, inputs.values())) <= MAX_CHARACTERS


def add_batch(
    connection: Connection, inputs: Mapping[str, str], columns: Mapping[str, Any], *, now: datetime
) -> InsertedBatch:
    """Insert entries; `inputs` has the input of each by its external id, `columns` what they share.

    A caller's connection may use any driver, so COPY is not used.
    """
    ids: list[int] = []
    for part in _parts(inputs):
        statement, parameters = bind_batch(connection.dialect.name, part, columns)
        payload = notification_payload(connection, Topic.WORK_QUEUE)
        rows = connection.execute(statement, {**parameters, "now": now, "payload": payload}).all()
        ids += parse_inserted(rows).ids
        announce(connection, Topic.WORK_QUEUE, is_sent=True)
    return InsertedBatch(ids, now)


def bind_batch(
    dialect: str, inputs: Mapping[str, str], columns: Mapping[str, Any], *, group: str | None = None
) -> BoundStatement:
    """The statement that inserts a batch, without its parameters `now` and `payload`.

    With the name of a group they get that group; if it does not exist, nothing is inserted.
    """
    parameters = {**columns, "entries": _pair_document(dialect, inputs)}
    if group is not None:
        parameters["group_name"] = group
    is_single = len(inputs) == 1
    return _insert(dialect, tuple(columns), in_group=group is not None, is_single=is_single), parameters


def parse_inserted(rows: Sequence[Any]) -> InsertedBatch:
    """The result of `bind_batch`. Ids ascend in the order given, while RETURNING has no defined order."""
    ids, created_at = rows[0][:2]
    if isinstance(ids, int):
        ids = sorted(row[0] for row in rows)
    return InsertedBatch(ids, created_at.astimezone(UTC))


def _parts(inputs: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """The inputs in parts, each for one statement."""
    if is_one_statement(inputs):
        yield inputs
        return
    part: dict[str, str] = {}
    size = 0
    for external_id, text in inputs.items():
        if part and (len(part) == MAX_ROWS or size + len(text) > MAX_CHARACTERS):
            yield part
            part, size = {}, 0
        part[external_id] = text
        size += len(text)
    yield part


@cache
def _insert(dialect: str, names: tuple[str, ...], *, in_group: bool, is_single: bool) -> Any:
    """Insert a batch and return ids and `created_at`: one row of all on PostgreSQL, a row each on SQLite.

    On PostgreSQL it sends the notification too, so that it needs no explicit transaction.
    """
    queue, group = tables_for(dialect).work_queue, tables_for(dialect).manifest_group
    given = _pairs(dialect)
    columns: dict[str, Any] = {
        "external_id": given.c.external_id,
        "input": cast(given.c.input, JsonText),
        "status": sql_literal(QueueStatus.QUEUED),
        "ready": true(),
        "created_at": now_parameter(dialect),
        **{name: _bind_column(name) for name in names},
    }
    source: FromClause = given
    if in_group:
        columns |= {"group_id": group.c.id, "group_priority": group.c.priority}
        source = given.join(group, group.c.name == bindparam("group_name", type_=Text))
    rows = select(*columns.values()).select_from(source)
    statement = insert(queue).from_select(list(columns), rows).returning(queue.c.id, queue.c.created_at)
    if dialect == SQLITE:
        return statement
    has_payload = bindparam("payload", type_=Text).is_not(None)
    notify = case((has_payload, cast(notify_expression(), Text)))
    if is_single:  # aggregates would cost an eighth of the time
        return statement.returning(notify)
    from sqlalchemy.dialects.postgresql import ARRAY, aggregate_order_by

    inserted = statement.cte("inserted")
    ids = func.array_agg(aggregate_order_by(inserted.c.id, inserted.c.id), type_=ARRAY(BigId))
    created_at = func.min(inserted.c.created_at, type_=Utc)
    return select(ids, created_at, notify).having(func.count() > literal_column("0"))


def _bind_column(name: str) -> ColumnElement[Any]:
    kind = SHARED_COLUMNS[name]
    value = cast(bindparam(name, type_=Text), kind) if kind is JsonText else bindparam(name, type_=kind)
    return value.label(name)


def _pair_document(dialect: str, inputs: Mapping[str, str]) -> str:
    """Encode external ids and inputs as one parameter.

    On PostgreSQL they are separated by control characters, which JSON cannot contain: much cheaper than
    `rows_of`.
    """
    if dialect == SQLITE:
        return json.dumps(list(inputs.items()), ensure_ascii=False, separators=(",", ":"))
    return RECORD_END.join(map(FIELD_END.join, inputs.items()))


def _pairs(dialect: str) -> FromClause:
    """The rows of a `_pair_document`."""
    entries = bindparam("entries", type_=Text)
    if dialect == SQLITE:
        pair = func.json_each(entries).table_valued("value", name="each").c.value
        parts = [func.json_extract(pair, f"$[{at}]", type_=Text) for at in (0, 1)]
    else:
        line = func.string_to_table(entries, literal_column(f"chr({ord(RECORD_END)})")).column_valued("line")
        end = literal_column(f"chr({ord(FIELD_END)})", Text)
        parts = [func.split_part(line, end, literal_column(at, Integer), type_=Text) for at in "12"]
    return select(parts[0].label("external_id"), parts[1].label("input")).subquery("given")
