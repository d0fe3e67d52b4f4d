"""Run one cycle of the manifest manager, and repair manifests without a next due time (watchdog)."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from trax.engine.manifest_manager import ManagerInput, ManagerResult, manifest_manager
from trax.engine.retry import rules_of
from trax.events import Topic
from trax.records.audit import Actor, NewAudit, Via
from trax.records.manifest import ToRest
from trax.schedule.decide import decide
from trax.settings import Settings
from trax.store import Connection, audit
from trax.store.announce import announce
from trax.store.manifests import manifest_due
from trax.store.manifests.manifest_due import CycleStart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trax.records.manifest import ManifestState
    from trax.store import Store

logger = logging.getLogger(__name__)

BATCH_SIZE: Final = 1_000
"""How many manifests the watchdog checks in one query."""
MAX_NAMES_LOGGED: Final = 10
"""The maximum number of manifests that one log line names."""
WATCHDOG: Final = Actor("watchdog", Via.SYSTEM)


def run_manager_cycle(
    connection: Connection,
    store: Store,
    settings: Settings,
    manager_input: ManagerInput,
    *,
    settings_from_rows: Callable[[dict[str, str]], Settings] | None = None,
) -> ManagerResult | None:
    """Run one cycle; None if another server holds the leader lock, or the manager is disabled.

    `settings_from_rows` returns the settings in effect for the rows that operators have edited.
    """
    cycle_start = manifest_due.start_cycle(connection, settings, now=store.statement_now())
    settings = settings_from_rows(cycle_start.settings) if settings_from_rows else settings
    if not (cycle_start.is_leader and settings.manifest_manager_enabled):
        return None
    extra = {Connection: connection, Settings: settings, datetime: cycle_start.now, CycleStart: cycle_start}
    result = manifest_manager.run_blocking(manager_input, extra=extra)
    return replace(result, stale_priorities=cycle_start.maintenance.stale_priorities)


def repair_silent_manifests(connection: Connection, settings: Settings, *, now: datetime) -> list[str]:
    """Set the next due time of manifests that would never run again; returns their external ids.

    Such a manifest has no next due time, no entry or run that would set one, and no reason to rest. Every
    change of a manifest sets its next due time, so there should be none: each one found is a bug, and is
    logged.
    """
    suspects = manifest_due.find_without_next_due(connection)
    threshold = settings.default_misfire_threshold
    silent: list[int] = []
    for start in range(0, len(suspects), BATCH_SIZE):
        batch = suspects[start : start + BATCH_SIZE]
        states = manifest_due.load_states_unlocked(connection, batch, default_threshold=threshold)
        silent += _ids_not_resting(states, settings, now)
    if not silent:
        return []
    # Check again with the rows locked: a concurrent writer has either committed or waits for the lock.
    locked = manifest_due.load_states(connection, silent, default_threshold=threshold)
    repaired = manifest_due.mark_due(connection, _ids_not_resting(locked, settings, now), now=now)
    if repaired:
        _report_repairs(connection, repaired, now)
    return repaired


def _ids_not_resting(states: Iterable[ManifestState], settings: Settings, now: datetime) -> list[int]:
    """The ids of manifests that do not rest: they are due now or later, or became a dead letter."""
    rules = rules_of(settings)
    return [state.id for state in states if not isinstance(decide(state, rules, now), ToRest)]


def _report_repairs(connection: Connection, repaired: list[str], now: datetime) -> None:
    announce(connection, Topic.MANIFEST)
    names = ", ".join(repaired[:MAX_NAMES_LOGGED]) + (", …" if len(repaired) > MAX_NAMES_LOGGED else "")
    logger.warning(
        "%s manifests had no next due time, no entry and no run, and would never have run again; "
        "they are due now: %s",
        len(repaired),
        names,
        extra={"manifests": repaired},
    )
    new = NewAudit(
        action="manifests.repair",
        noun="manifest",
        ids=tuple(repaired),
        count=len(repaired),
        before={"next_due_at": None},
        after={"next_due_at": now.isoformat()},
    )
    audit.add(connection, new, actor=WATCHDOG, reason="no next due time was set", now=now)
