"""Waking dormant dependents from inside a run of their parent, with an input made there and then."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trax.admin.triggers import refusal_of_retired, unknown
from trax.errors import DefinitionError
from trax.queue import clamped
from trax.records.external_id import new_external_id
from trax.records.states import Origin, ScheduleType
from trax.records.work_queue_entry import NewEntry
from trax.store import activations, work_queue

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from trax.settings import Settings
    from trax.store import Connection

logger = logging.getLogger(__name__)


def activate(
    connection: Connection,
    parent: str,
    wanted: Sequence[tuple[str, str]],
    settings: Settings,
    *,
    force: bool,
    now: datetime,
) -> int:
    """Queue each of these (external id, input as JSON text), or none when one may not be woken from here."""
    found = activations.held(connection, [external_id for external_id, _ in wanted])
    for external_id, _ in wanted:
        _check(external_id, found.get(external_id), parent)
    entries = [
        _entry(found[external_id], text, settings)
        for external_id, text in dict(wanted).items()
        if not _passed_over(found[external_id], force)
    ]
    return len(work_queue.add(connection, entries, now=now))


def _check(external_id: str, row: Any, parent: str) -> None:
    if row is None:
        raise unknown(external_id)
    if row.retired_at is not None:
        raise refusal_of_retired(external_id, row.retired_at)
    if row.schedule_type != ScheduleType.DORMANT_DEPENDENT:
        raise DefinitionError(f"manifest {external_id!r} is not dormant: its type is {row.schedule_type}")
    if row.parent != parent:
        raise DefinitionError(f"manifest {external_id!r} depends on {row.parent!r}, not on {parent!r}")


def _passed_over(row: Any, force: bool) -> bool:  # noqa: FBT001
    reason = None
    if row.is_queued:
        reason = "an entry of it is queued already"
    elif row.is_active:
        reason = "a run of it is active"
    elif row.is_awaiting and not force:
        reason = "its dead letter awaits a person"
    if reason:
        name = row.external_id
        logger.warning("manifest %s is not activated: %s", name, reason, extra={"manifest": name})
    return reason is not None


def _entry(row: Any, text: str, settings: Settings) -> NewEntry:
    return NewEntry(
        external_id=new_external_id(),
        train=row.train,
        origin=Origin.DORMANT,
        input=text,
        priority=clamped(row.group_priority + settings.dependent_priority_boost),
        group_id=row.group_id,
        group_priority=row.group_priority,
        manifest_id=row.id,
        timeout_seconds=row.timeout_seconds,
    )
