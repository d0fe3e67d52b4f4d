"""Activate dormant dependents from a run of their parent, with an input that the run provides."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trax.admin.triggers import manifest_not_found, manifest_retired_conflict
from trax.errors import DefinitionError
from trax.queue import clamp_priority
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
    dependents: Sequence[tuple[str, str]],
    settings: Settings,
    *,
    force: bool,
    now: datetime,
) -> int:
    """Queue an entry for each (external id, input as JSON text); if one may not be activated here, none.

    Returns the number of entries. A manifest that is queued, active or has an open dead letter is skipped.
    """
    rows = activations.lock_targets(connection, [external_id for external_id, _ in dependents])
    for external_id, _ in dependents:
        _check(external_id, rows.get(external_id), parent)
    entries = [
        _entry(rows[external_id], text, settings)
        for external_id, text in dict(dependents).items()
        if not _is_skipped(rows[external_id], force)
    ]
    return len(work_queue.add(connection, entries, now=now))


def _check(external_id: str, row: Any, parent: str) -> None:
    if row is None:
        raise manifest_not_found(external_id)
    if row.retired_at is not None:
        raise manifest_retired_conflict(external_id, row.retired_at)
    if row.schedule_type != ScheduleType.DORMANT_DEPENDENT:
        raise DefinitionError(f"manifest {external_id!r} is not dormant: its type is {row.schedule_type}")
    if row.parent != parent:
        raise DefinitionError(f"manifest {external_id!r} depends on {row.parent!r}, not on {parent!r}")


def _is_skipped(row: Any, force: bool) -> bool:  # noqa: FBT001
    reason = None
    if row.is_queued:
        reason = "it already has a queued entry"
    elif row.is_active:
        reason = "it has an active run"
    elif row.is_awaiting and not force:
        reason = "its dead letter awaits a person"
    if reason:
        name = row.external_id
        logger.warning("manifest %r was not activated: %s", name, reason, extra={"manifest": name})
    return reason is not None


def _entry(row: Any, text: str, settings: Settings) -> NewEntry:
    return NewEntry(
        external_id=new_external_id(),
        train=row.train,
        origin=Origin.DORMANT,
        input=text,
        priority=clamp_priority(row.group_priority + settings.dependent_priority_boost),
        group_id=row.group_id,
        group_priority=row.group_priority,
        manifest_id=row.id,
        timeout_seconds=row.timeout_seconds,
    )
