"""What operators and servers have recorded: groups, changes of limits, cancellations.

For `trax verify`, which judges the history by it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import func, select

from trax.records.audit import DECLARED_SETTINGS
from trax.store.dialect import last_id
from trax.store.schema import tables

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row

LIMIT_ACTIONS: Final = (
    "groups.update",
    "groups.declare",
    "settings.update",
    "settings.reset",
    DECLARED_SETTINGS,
)
CANCELLING: Final = "work_queue.cancel"
MAX_ACTIONS: Final = 10_000
"""How many cancellations are read, the newest first."""


class GroupRow(NamedTuple):
    """A group as it is now."""

    id: int
    name: str
    max_active_jobs: int | None
    enabled: bool
    created_at: datetime
    updated_at: datetime


class LimitChange(NamedTuple):
    """An entry of the audit log that changed a limit."""

    id: int
    at: datetime
    action: str
    noun: str
    ids: Sequence[str]
    before: Any
    after: Any
    restores: Any
    expects: Any


def load_groups(connection: Connection) -> list[GroupRow]:
    group = tables(connection).manifest_group
    query = select(*(group.c[name] for name in GroupRow._fields)).order_by(group.c.id)
    return [GroupRow._make(row) for row in connection.execute(query)]


def load_limit_changes(connection: Connection) -> list[LimitChange]:
    """The entries of the audit log about limits, oldest first."""
    audit = tables(connection).audit
    columns = [audit.c[name] for name in LimitChange._fields]
    query = select(*columns).where(audit.c.action.in_(LIMIT_ACTIONS)).order_by(audit.c.id)
    return [_limit_change(row) for row in connection.execute(query)]


def _limit_change(row: Row[*tuple[Any, ...]]) -> LimitChange:
    change = LimitChange._make(row)
    texts = {name: getattr(change, name) for name in ("ids", "before", "after", "restores", "expects")}
    return change._replace(**{name: json.loads(value) for name, value in texts.items() if value is not None})


def is_audit_complete(connection: Connection) -> bool:
    """Whether no entry of the audit log was deleted: the oldest are deleted first; their ids are missing."""
    audit = tables(connection).audit
    is_declared = audit.c.action == DECLARED_SETTINGS
    first = connection.execute(select(func.min(audit.c.id)).where(~is_declared)).scalar()
    before = [] if first is None else [audit.c.id < first]
    kept = connection.execute(select(func.count()).where(is_declared, *before)).scalar_one()
    return kept == (last_id(connection, audit) if first is None else first - 1)


def load_stored_setting(connection: Connection, name: str) -> tuple[str, datetime] | None:
    """The stored value of a setting, as JSON text, and when it was written."""
    setting = tables(connection).setting
    row = connection.execute(
        select(setting.c.value, setting.c.updated_at).where(setting.c.name == name)
    ).one_or_none()
    return None if row is None else (row.value, row.updated_at)


def load_cancelled_entries(connection: Connection) -> set[int]:
    """The entries that operators have cancelled, as far as the audit log names them."""
    audit = tables(connection).audit
    query = select(audit.c.ids).where(audit.c.action == CANCELLING).order_by(audit.c.id.desc())
    texts = connection.execute(query.limit(MAX_ACTIONS)).scalars()
    return {int(each) for text in texts for each in json.loads(text)}


def load_edited_groups(connection: Connection) -> dict[str, datetime]:
    """The groups whose limits operators have changed, by name, and when."""
    return {
        name: change.at
        for change in load_limit_changes(connection)
        if change.action == "groups.update"
        for name in change.ids
    }
