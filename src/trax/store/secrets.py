"""The inputs that hold encrypted secrets, in whatever table they are: read in bounded pages, and replaced."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import Text, func, select, update
from sqlalchemy import cast as sql_cast

from trax.masking import SECRET
from trax.records.states import DeadLetterStatus, QueueStatus
from trax.store.dialect import document, lift_limits, plan_freely, rows_of
from trax.store.schema import tables, tables_for
from trax.store.types import BigId, word

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection, Table, Update

KEPT_IN: Final = ("work_queue", "manifest", "dead_letter", "metadata")
ENCRYPTED: Final = f'%"{SECRET}":"v1:%'
KEY_ID: Final = re.compile(rf'"{re.escape(SECRET)}":"v1:([0-9a-f]{{8}}):')
COUNTED_AT_MOST: Final = 1000


class SecretInputs(NamedTuple):
    """The inputs with secrets among some rows of a table, by id; `last` is the last row that was read."""

    inputs: dict[int, str]
    last: int | None


def load_page(connection: Connection, table: str, *, after: int, rows: int) -> SecretInputs:
    """Look at the next rows of a table, in the order of their ids; `last` is None when there are none."""
    inputs = _table(connection, table)
    looked_at = select(inputs.c.id).where(inputs.c.id > after).order_by(inputs.c.id).limit(rows).subquery()
    last = connection.execute(select(func.max(looked_at.c.id))).scalar()
    if last is None:
        return SecretInputs({}, None)
    within = inputs.c.id.between(after + 1, last)
    found = connection.execute(select(inputs.c.id, inputs.c.input).where(within, _holds_secrets(inputs)))
    return SecretInputs({row.id: row.input for row in found}, last)


def replace_inputs(connection: Connection, table: str, changes: Mapping[int, tuple[str, str]]) -> int:
    """Replace these inputs, each the old by the new; returns how many were.

    What somebody else holds, or has changed since, is passed over.
    """
    if not changes:
        return 0
    rows = [{"id": one, "old": old, "new": new} for one, (old, new) in changes.items()]
    given = {"changes": document(rows)}
    return connection.execute(_replace(connection.dialect.name, table), given).rowcount


def count_keys(connection: Connection) -> Counter[str]:
    """How many of the inputs that are still to run need each key; a bounded number of them is looked at."""
    lift_limits(connection)
    plan_freely(connection)
    t = tables(connection)
    waiting = (
        (t.work_queue, t.work_queue.c.status == word(QueueStatus.QUEUED)),
        (t.manifest, t.manifest.c.retired_at.is_(None)),
        (t.dead_letter, t.dead_letter.c.status == word(DeadLetterStatus.AWAITING_INTERVENTION)),
    )
    found: Counter[str] = Counter()
    for table, is_waiting in waiting:
        query = select(table.c.input).where(is_waiting, _holds_secrets(table)).limit(COUNTED_AT_MOST)
        texts: Sequence[str] = connection.execute(query).scalars().all()
        found.update(key for text in texts for key in set(KEY_ID.findall(text)))
    return found


def _table(connection: Connection, name: str) -> Table:
    return getattr(tables(connection), name)


def _holds_secrets(table: Table) -> ColumnElement[bool]:
    return sql_cast(table.c.input, Text).like(ENCRYPTED)


@cache
def _replace(dialect: str, name: str) -> Update:
    table: Any = getattr(tables_for(dialect), name)
    given = rows_of(dialect, "changes", {"id": BigId, "old": Text(), "new": table.c.input.type})
    wanted = rows_of(dialect, "changes", {"id": BigId})
    free = select(table.c.id).where(table.c.id.in_(select(wanted.c.id))).with_for_update(skip_locked=True)
    return (
        update(table)
        .where(table.c.id == given.c.id, table.c.id.in_(free), sql_cast(table.c.input, Text) == given.c.old)
        .values(input=given.c.new)
    )
