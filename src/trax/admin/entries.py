"""Insert entries for manifests: all in one statement, or one by one if the database refuses one of them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trax.events import Topic
from trax.records.external_id import new_external_id
from trax.records.states import Origin, ScheduleType
from trax.schedule.due import UNREADABLE_RECHECK_DELAY
from trax.store import failures, manifest_looks
from trax.store.announcing import announce
from trax.store.due_entries import insert_statements
from trax.store.savepoint import RowsRefused, try_together

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from trax.records.standing import ManifestState, ToEnqueue
    from trax.store import Connection

logger = logging.getLogger(__name__)


def create_entries(
    connection: Connection,
    due: Sequence[tuple[ManifestState, ToEnqueue]],
    *,
    now: datetime,
    commit: bool = False,
) -> list[int]:
    """Insert an entry for each manifest and update the manifest accordingly. Returns the entries' ids.

    With `commit` the transaction may be committed in the same round trip: nothing else follows in it.
    """
    if not due:
        return []
    announce(connection, Topic.WORK_QUEUE)
    try:
        return _create(connection, due, now, commit=commit)
    except RowsRefused:
        return [entry for item in due for entry in _create_one(connection, item, now)]


def _create_one(connection: Connection, item: tuple[ManifestState, ToEnqueue], now: datetime) -> list[int]:
    """Insert one entry; if the database refuses it (its manifest has one already), check it again later.

    One bad entry must not block the others, and nothing else would set the manifest's next due time.
    """
    try:
        return _create(connection, [item], now)
    except RowsRefused as refused:
        name = item[0].external_id
        text = "manifest %r: its entry could not be inserted: %s; trying again later"
        logger.warning(text, name, refused, extra={"manifest": name})
        manifest_looks.set_next_due(connection, {item[0].id: now + UNREADABLE_RECHECK_DELAY})
        return []


def _create(
    connection: Connection,
    due: Sequence[tuple[ManifestState, ToEnqueue]],
    now: datetime,
    *,
    commit: bool = False,
) -> list[int]:
    inputs = failures.load_failed_inputs(
        connection, [state.id for state, decision in due if _is_dormant_retry(state, decision)]
    )
    rows = [_row(number, *item, inputs.get(item[0].id)) for number, item in enumerate(due)]
    steps = insert_statements(connection.dialect.name, rows, now=now)
    ids = {name: entry_id for entry_id, name in try_together(connection, *steps, commit=commit)[0]}
    return [ids[row["external_id"]] for row in rows]


def _is_dormant_retry(state: ManifestState, decision: ToEnqueue) -> bool:
    """Whether it is a retry of a dormant dependent: its input came from its activation, not its manifest."""
    is_dormant = state.timing.schedule_type is ScheduleType.DORMANT_DEPENDENT
    return is_dormant and decision.origin is Origin.RETRY


def _row(number: int, state: ManifestState, decision: ToEnqueue, own_input: str | None) -> dict[str, Any]:
    """The columns of an entry; missing columns are NULL."""
    is_retry = decision.origin is Origin.RETRY
    row: dict[str, Any] = {
        "number": number,
        "external_id": new_external_id(),
        "manifest_id": state.id,
        "origin": str(decision.origin),  # a plain str: binding an enum is slow
        "priority": decision.priority,
        "group_priority": state.group_priority,
        "attempt": state.failure_count + 1 if is_retry else 1,
        "scheduled_for": decision.scheduled_for,
    }
    if own_input is not None:
        row["input"] = own_input
    if decision.scheduled_at is not None:
        row["scheduled_at"] = decision.scheduled_at
    if decision.next_due_at is not None:
        row["next_due_at"] = decision.next_due_at
    if decision.consumed_parent_success_at is not None:
        row["consumed_parent_success_at"] = decision.consumed_parent_success_at
    return row
