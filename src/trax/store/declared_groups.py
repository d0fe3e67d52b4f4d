"""Groups that code declares: what each app declares of them; retire those that nothing declares or needs.

A group is never deleted: records and audit entries name it, and it keeps its limit if it is used again.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from sqlalchemy import bindparam, not_, or_, select, text, update

from trax.bounds import LATEST
from trax.store import stats
from trax.store.dialect import document, id_document, ids_of, rows_of
from trax.store.schema import tables, tables_for
from trax.store.schema.manifest import DECLARED
from trax.store.schema.metadata import PENDING, RUNNING
from trax.store.schema.work_queue import NOT_READY, READY
from trax.store.types import BigId, Utc, parse_json

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Select

BATCH: Final = 10_000
"""How many groups one transaction checks."""

CLOCK_TOLERANCE: Final = timedelta(hours=1)
"""How much later than its neighbours a record may have been created, by its id."""

DeclaredOptions = dict[str, dict[str, Any]]
"""The options that code declares of a group, by app."""


def load_declared(connection: Connection, names: Iterable[str]) -> dict[str, DeclaredOptions]:
    """What apps declare of these groups; groups that none declares are missing."""
    parameters = {"names": document({"name": name} for name in names)}
    rows = connection.execute(_select_declared(connection.dialect.name, is_among=True), parameters)
    return {row.name: _parse_declared(row.declared) for row in rows}


def load_dropped(connection: Connection, app: str, keep: Iterable[str]) -> dict[str, DeclaredOptions]:
    """The groups that this app has declared and that are not in `keep`, with what apps declare of them."""
    parameters = {"names": document({"name": name} for name in keep)}
    rows = connection.execute(_select_declared(connection.dialect.name, is_among=False), parameters)
    declared = {row.name: _parse_declared(row.declared) for row in rows}
    return {name: by_app for name, by_app in declared.items() if app in by_app}


@cache
def _select_declared(dialect: str, *, is_among: bool) -> Select[Any, Any]:
    group = tables_for(dialect).manifest_group
    names = rows_of(dialect, "names", {"name": group.c.name.type})
    given = group.c.name.in_(select(names.c.name))
    condition = given if is_among else ~given
    return select(group.c.name, group.c.declared).where(text(DECLARED), condition).order_by(group.c.name)


class GroupSweep(NamedTuple):
    """The groups that a batch retired, and those in use again; `last_id`: where to go on, None at the end."""

    retired: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()
    last_id: int | None = None


def find_unused(connection: Connection, *, after_id: int = 0, dropped: Collection[str] = ()) -> GroupSweep:
    """Find the next groups to retire, and retired ones that are needed again.

    A group stays while the code of an app declares it, if an operator has edited it, and while a manifest, an
    entry, a run, a record or a dead letter names it. `dropped` are to be regarded as not declared.
    """
    recent = stats.load_unsettled_groups(connection)
    if recent is None:
        return GroupSweep()
    parameters = {
        "after_id": after_id,
        "recent": id_document(recent),
        "since": _oldest_record(connection) - CLOCK_TOLERANCE,
        "dropped": document({"name": name} for name in dropped),
    }
    rows = connection.execute(_select_unused(connection.dialect.name), parameters).all()
    return GroupSweep(
        retired=tuple(row.name for row in rows if row.is_unused and row.retired_at is None),
        returned=tuple(row.name for row in rows if not row.is_unused and row.retired_at is not None),
        last_id=rows[-1].id if len(rows) == BATCH else None,
    )


def sweep(connection: Connection, *, after_id: int, now: datetime) -> GroupSweep:
    """Retire the next groups of no use, and bring retired ones back that are needed again.

    An entry that is written at the same moment may not be seen: its group keeps its limit, and the next sweep
    brings it back.
    """
    found = find_unused(connection, after_id=after_id)
    _set_retired(connection, found.retired, at=now)
    _set_retired(connection, found.returned, at=None)
    return found


def _set_retired(connection: Connection, names: Collection[str], *, at: datetime | None) -> None:
    if not names:
        return
    group = tables(connection).manifest_group
    # Checked again: since the search, a start may have declared it, or an operator edited it.
    is_free = (group.c.declared.is_(None), group.c.edited_at.is_(None)) if at is not None else ()
    statement = update(group).where(group.c.name.in_(names), *is_free)
    connection.execute(statement.values(retired_at=at))


@cache
def _select_unused(dialect: str) -> Select[Any]:
    group = tables_for(dialect).manifest_group
    dropped = rows_of(dialect, "dropped", {"name": group.c.name.type})
    is_free = group.c.declared.is_(None) | group.c.name.in_(select(dropped.c.name))
    candidates = (
        select(group.c.id, group.c.name, group.c.retired_at)
        .where(group.c.id > bindparam("after_id", type_=BigId), is_free, group.c.edited_at.is_(None))
        .order_by(group.c.id)
        .limit(BATCH)
        .subquery("candidates")
    )
    is_unused = not_(or_(*_names_of(dialect, candidates.c.id)))
    return select(candidates, is_unused.label("is_unused")).order_by(candidates.c.id)


def _names_of(dialect: str, group_id: ColumnElement[int]) -> list[ColumnElement[bool]]:
    """Whether a manifest, a queued entry, an active run, a record or a dead letter names a group."""
    t = tables_for(dialect)
    queue, tally = t.work_queue.c, t.group_tally.c
    active = [
        select(t.metadata.c.group_id).where(text(state), t.metadata.c.group_id.is_not(None))
        for state in (PENDING, RUNNING)
    ]
    recent = select(ids_of(dialect, "recent").c.id)
    found = (
        select(t.manifest.c.id).where(t.manifest.c.group_id == group_id),
        select(queue.id).where(queue.group_id == group_id, text(READY)),
        select(queue.id).where(queue.group_id == group_id, text(NOT_READY)),
        select(t.dead_letter.c.id).where(t.dead_letter.c.group_id == group_id),
        select(tally.group_id).where(
            tally.group_id == group_id, tally.last_run_at >= bindparam("since", type_=Utc)
        ),
    )
    return [
        # Not EXISTS: for many groups, PostgreSQL would read whole tables into hash tables.
        *(query.limit(1).scalar_subquery().is_not(None) for query in found),
        *(group_id.in_(query) for query in (recent, *active)),
    ]


def _oldest_record(connection: Connection) -> datetime:
    """When the oldest record was created; in the far future without records."""
    run = tables(connection).metadata
    query = select(run.c.created_at).order_by(run.c.id).limit(1)
    return connection.execute(query).scalar() or LATEST


def _parse_declared(stored: str) -> DeclaredOptions:
    """A row may have been edited by hand: what cannot be read counts as not declared."""
    parsed = parse_json(stored)
    return cast("DeclaredOptions", parsed) if isinstance(parsed, dict) else {}
