"""Entries for manifests: many in one statement, and one by one when one of them is refused."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trax.events import Topic
from trax.records.external_id import new_external_id
from trax.records.states import Origin, ScheduleType
from trax.schedule.due import LEFT_TO_OTHERS
from trax.store import failures, manifest_looks
from trax.store.announcing import announce
from trax.store.due_entries import queueing
from trax.store.savepoint import Refused, try_together

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from trax.records.standing import Standing, ToQueue
    from trax.store import Connection

logger = logging.getLogger(__name__)


def create_entries(
    connection: Connection, wanted: Sequence[tuple[Standing, ToQueue]], *, now: datetime, commit: bool = False
) -> list[int]:
    """Write an entry for each, and remember on the manifest what it was for. Returns the entries' ids.

    `commit` says that nothing else follows in this transaction: it may end with them, in the same trip.
    """
    if not wanted:
        return []
    announce(connection, Topic.WORK_QUEUE)
    try:
        return _create(connection, wanted, now, commit=commit)
    except Refused:
        return [entry for one in wanted for entry in _create_alone(connection, one, now)]


def _create_alone(connection: Connection, one: tuple[Standing, ToQueue], now: datetime) -> list[int]:
    """One entry that cannot be written, a second one of its manifest say, must not keep out the others.

    It is looked at again: by then what stood against it may be over, and nobody else would ask.
    """
    try:
        return _create(connection, [one], now)
    except Refused as refused:
        name = one[0].external_id
        logger.warning("manifest %s: no entry could be written: %s", name, refused, extra={"manifest": name})
        manifest_looks.look_again(connection, {one[0].id: now + LEFT_TO_OTHERS})
        return []


def _create(
    connection: Connection,
    wanted: Sequence[tuple[Standing, ToQueue]],
    now: datetime,
    *,
    commit: bool = False,
) -> list[int]:
    inputs = failures.failed_inputs(
        connection, [standing.id for standing, it in wanted if _is_awake(standing, it)]
    )
    rows = [_row(number, *one, inputs.get(one[0].id)) for number, one in enumerate(wanted)]
    steps = queueing(connection.dialect.name, rows, now=now)
    ids = {name: entry_id for entry_id, name in try_together(connection, *steps, commit=commit)[0]}
    return [ids[row["external_id"]] for row in rows]


def _is_awake(standing: Standing, decision: ToQueue) -> bool:
    """Whether it is tried again with the input that it was woken with, which its manifest does not know."""
    is_dormant = standing.timing.schedule_type is ScheduleType.DORMANT_DEPENDENT
    return is_dormant and decision.origin is Origin.RETRY


def _row(number: int, standing: Standing, decision: ToQueue, own_input: str | None) -> dict[str, Any]:
    """What it does not mention is NULL."""
    is_retry = decision.origin is Origin.RETRY
    row: dict[str, Any] = {
        "number": number,
        "external_id": new_external_id(),
        "manifest_id": standing.id,
        "origin": str(decision.origin),  # a plain word: writing an enum is what costs most of it
        "priority": decision.priority,
        "group_priority": standing.group_priority,
        "attempt": standing.failure_count + 1 if is_retry else 1,
        "scheduled_for": decision.scheduled_for,
    }
    if own_input is not None:
        row["input"] = own_input
    if decision.scheduled_at is not None:
        row["scheduled_at"] = decision.scheduled_at
    if decision.look_again_at is not None:
        row["next_due_at"] = decision.look_again_at
    if decision.consumed_parent_success_at is not None:
        row["consumed_parent_success_at"] = decision.consumed_parent_success_at
    return row
