"""Insert many entries with a single statement: of an enqueue call, or of due manifests.

The entries of a call differ only in external id and input. Those of due manifests also record on each
manifest what was scheduled.
"""

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
    or_,
    select,
    true,
    update,
)

from trax.events import Topic
from trax.records.states import QueueStatus
from trax.store.announce import announce, notification_payload
from trax.store.dialect import notify_expression, now_parameter, quick_document, rows_of
from trax.store.schema import tables_for
from trax.store.types import SQLITE, BigId, ByteOrderText, JsonText, Utc, sql_literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, FromClause, Insert, Update
    from sqlalchemy.types import TypeEngine

    from trax.store.pipeline import BoundStatement


MAX_ROWS: Final = 10_000
MAX_CHARACTERS: Final = 8_000_000
"""The maximum for one statement; a single row may have more text."""

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
"""The columns that the entries of a batch may share; without `ready`, the entries are ready."""

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


ENTRY_COLUMNS: Final = (
    "external_id",
    "manifest_id",
    "origin",
    "priority",
    "group_priority",
    "attempt",
    "scheduled_at",
    "scheduled_for",
)
"""Columns of a row that go to the entry, beside its `number` (the insertion order)."""
MANIFEST_COLUMNS: Final = ("next_due_at", "consumed_parent_success_at")
"""Columns of a row that go to the manifest; a missing next_due_at is NULL, the other one stays as it is."""
COPIED_FROM_MANIFEST: Final = ("train", "group_id", "timeout_seconds")
"""Columns copied from the manifest, whose row is locked since it was read.

The input is copied too, unless the row has one: an activation with its own input is retried with that input.
"""


def insert_statements(
    dialect: str, rows: Sequence[Mapping[str, Any]], *, now: datetime
) -> list[BoundStatement]:
    """The statements that insert these entries in order of `number`; the first returns (id, external id).

    PostgreSQL inserts and updates in one statement, and looks up each manifest once.
    """
    entries = quick_document(dialect, rows)
    updates: list[BoundStatement] = (
        [(_update_manifests(dialect), {"entries": entries})] if dialect == SQLITE else []
    )
    return [(_insert_due(dialect), {"entries": entries, "now": now}), *updates]


@cache
def _insert_due(dialect: str) -> Insert:
    queue, source = tables_for(dialect).work_queue, _source(dialect)
    columns: dict[str, Any] = {
        name: source.c[name] for name in (*COPIED_FROM_MANIFEST, "input", *ENTRY_COLUMNS)
    } | {
        "status": sql_literal(QueueStatus.QUEUED),
        "ready": or_(source.c.scheduled_at.is_(None), source.c.scheduled_at <= now_parameter(dialect)),
        "created_at": now_parameter(dialect),
    }
    rows = select(*columns.values()).order_by(source.c.number)
    return insert(queue).from_select(list(columns), rows).returning(queue.c.id, queue.c.external_id)


def _source(dialect: str) -> FromClause:
    manifest, rows = tables_for(dialect).manifest, _entry_rows(dialect)
    columns = (
        *(manifest.c[name] for name in COPIED_FROM_MANIFEST),
        func.coalesce(rows.c.input, manifest.c.input).label("input"),
        *(rows.c[name] for name in ("number", *ENTRY_COLUMNS)),
    )
    if dialect == SQLITE:
        return select(*columns).join(rows, rows.c.manifest_id == manifest.c.id).subquery("looked_at")
    return _update_manifests(dialect).returning(*columns).cte("noted")


@cache
def _update_manifests(dialect: str) -> Update:
    manifest, rows = tables_for(dialect).manifest, _entry_rows(dialect)
    consumed = func.coalesce(rows.c.consumed_parent_success_at, manifest.c.consumed_parent_success_at)
    return (
        update(manifest)
        .where(manifest.c.id == rows.c.manifest_id)
        .values(
            next_due_at=rows.c.next_due_at,
            last_scheduled_for=rows.c.scheduled_for,
            consumed_parent_success_at=consumed,
        )
    )


@cache
def _entry_rows(dialect: str) -> FromClause:
    queue = tables_for(dialect).work_queue
    kinds: dict[str, TypeEngine[Any]] = {"number": Integer()}
    kinds |= {name: queue.c[name].type for name in ("input", *ENTRY_COLUMNS)} | {
        name: Utc() for name in MANIFEST_COLUMNS
    }
    return rows_of(dialect, "entries", kinds)
