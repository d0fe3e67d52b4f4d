"""Read and replace inputs with encrypted secrets, in all tables, page by page."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import Text, func, select, update
from sqlalchemy import cast as sql_cast

from trax.masking import SECRET_KEY
from trax.records.states import DeadLetterStatus, QueueStatus
from trax.store.dialect import allow_broad_plans, document, lift_limits, rows_of
from trax.store.schema import tables, tables_for
from trax.store.types import BigId, sql_literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection, Table, Update

TABLES_WITH_INPUTS: Final = ("work_queue", "manifest", "dead_letter", "metadata")
ENCRYPTED: Final = f'%"{SECRET_KEY}":"v1:%'
KEY_ID: Final = re.compile(rf'"{re.escape(SECRET_KEY)}":"v1:([0-9a-f]{{8}}):')
COUNTED_AT_MOST: Final = 1000


class SecretInputs(NamedTuple):
    """Inputs with secrets in one page of a table, by id; `last` is the last row id read."""

    inputs: dict[int, str]
    last: int | None


def load_page(connection: Connection, table: str, *, after: int, rows: int) -> SecretInputs:
    """Read the next rows of a table by id; `last` is None when there are no more."""
    inputs = _table(connection, table)
    scanned = select(inputs.c.id).where(inputs.c.id > after).order_by(inputs.c.id).limit(rows).subquery()
    last = connection.execute(select(func.max(scanned.c.id))).scalar()
    if last is None:
        return SecretInputs({}, None)
    within = inputs.c.id.between(after + 1, last)
    matches = connection.execute(select(inputs.c.id, inputs.c.input).where(within, _holds_secrets(inputs)))
    return SecretInputs({row.id: row.input for row in matches}, last)


def replace_inputs(connection: Connection, table: str, changes: Mapping[int, tuple[str, str]]) -> int:
    """Replace the old input by the new one per row. Returns how many were replaced.

    Rows that are locked or have changed in the meantime are skipped.
    """
    if not changes:
        return 0
    rows = [{"id": row_id, "old": old, "new": new} for row_id, (old, new) in changes.items()]
    parameters = {"changes": document(rows)}
    return connection.execute(_replace(connection.dialect.name, table), parameters).rowcount


def seal_input(connection: Connection, metadata_id: int, old: str, new: str) -> None:
    """Replace the input of a run, of its entry and of its manifest, where it is the old one."""
    run = tables(connection).metadata
    query = select(run.c.entry_id, run.c.manifest_id).where(run.c.id == metadata_id)
    for row in connection.execute(query):
        for table, row_id in (("metadata", metadata_id), ("work_queue", row[0]), ("manifest", row[1])):
            if row_id is not None:
                replace_inputs(connection, table, {row_id: (old, new)})


def count_keys(connection: Connection) -> Counter[str]:
    """Count, per key, the inputs that may still run and need it. Reads a bounded number of rows."""
    lift_limits(connection)
    allow_broad_plans(connection)
    t = tables(connection)
    waiting = (
        (t.work_queue, t.work_queue.c.status == sql_literal(QueueStatus.QUEUED)),
        (t.manifest, t.manifest.c.retired_at.is_(None)),
        (t.dead_letter, t.dead_letter.c.status == sql_literal(DeadLetterStatus.AWAITING_INTERVENTION)),
    )
    counts: Counter[str] = Counter()
    for table, is_waiting in waiting:
        query = select(table.c.input).where(is_waiting, _holds_secrets(table)).limit(COUNTED_AT_MOST)
        texts: Sequence[str] = connection.execute(query).scalars().all()
        counts.update(key for text in texts for key in set(KEY_ID.findall(text)))
    return counts


def _table(connection: Connection, name: str) -> Table:
    return getattr(tables(connection), name)


def _holds_secrets(table: Table) -> ColumnElement[bool]:
    return sql_cast(table.c.input, Text).like(ENCRYPTED)


@cache
def _replace(dialect: str, name: str) -> Update:
    table: Any = getattr(tables_for(dialect), name)
    changes = rows_of(dialect, "changes", {"id": BigId, "old": Text(), "new": table.c.input.type})
    ids = rows_of(dialect, "changes", {"id": BigId})
    unlocked = select(table.c.id).where(table.c.id.in_(select(ids.c.id))).with_for_update(skip_locked=True)
    return (
        update(table)
        .where(
            table.c.id == changes.c.id,
            table.c.id.in_(unlocked),
            sql_cast(table.c.input, Text) == changes.c.old,
        )
        .values(input=changes.c.new)
    )
