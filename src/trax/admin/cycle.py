"""One cycle of the manager: the lock, the clock, the settings, and the chain of junctions.

The watchdog beside it finds manifests that no cycle would ever look at.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from trax.admin.manifest_manager import Managed, Turn, manifest_manager
from trax.admin.policies import rules_of
from trax.events import Topic
from trax.records.audit import Actor, NewAudit, Via
from trax.records.standing import ToRest
from trax.schedule.decide import decide
from trax.settings import Settings
from trax.store import Connection, audit, leading, manifest_looks
from trax.store.announcing import announce
from trax.store.leading import Begun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trax.records.standing import Standing
    from trax.store import Store

logger = logging.getLogger(__name__)

AT_ONCE: Final = 1_000
"""How many suspects the watchdog reads at once."""
SHOWN: Final = 10
"""How many manifests one log line names."""
WATCHDOG: Final = Actor("watchdog", Via.SYSTEM)


def manage(
    connection: Connection,
    store: Store,
    settings: Settings,
    turn: Turn,
    *,
    accept: Callable[[dict[str, str]], Settings] | None = None,
) -> Managed | None:
    """Run one cycle, unless another server is at it, or managing is switched off: then None.

    `accept` makes of the rows that operators have edited the settings that count.
    """
    begun = leading.begin(connection, settings, now=store.given_now(connection))
    settings = accept(begun.settings) if accept else settings
    if not (begun.leads and settings.manifest_manager_enabled):
        return None
    extra = {Connection: connection, Settings: settings, datetime: begun.now, Begun: begun}
    managed = manifest_manager.run_blocking(turn, extra=extra)
    return replace(managed, stale_priorities=begun.trouble.stale_priorities)


def repair_silent_manifests(connection: Connection, settings: Settings, *, now: datetime) -> list[str]:
    """Have the manager look at manifests that would never run again; returns their external ids.

    Such a manifest has no planned look, nothing under way that would plan one, and no reason to rest. What
    changes the answer plans a look, so there should be none: each one found is a fault, and told as such.
    """
    suspects = manifest_looks.suspects(connection)
    threshold = settings.default_misfire_threshold
    silent: list[int] = []
    for start in range(0, len(suspects), AT_ONCE):
        some = suspects[start : start + AT_ONCE]
        silent += _awake(manifest_looks.glance(connection, some, default_threshold=threshold), settings, now)
    if not silent:
        return []
    # Once more with their rows locked: whatever was about to be written for them is there now, or waits.
    held = manifest_looks.standings(connection, silent, default_threshold=threshold)
    repaired = manifest_looks.plan_looks(connection, _awake(held, settings, now), now=now)
    if repaired:
        _tell(connection, repaired, now)
    return repaired


def _awake(standings: Iterable[Standing], settings: Settings, now: datetime) -> list[int]:
    """Those that do not rest: by themselves they would run, now or later, or be given up."""
    rules = rules_of(settings)
    return [one.id for one in standings if not isinstance(decide(one, rules, now), ToRest)]


def _tell(connection: Connection, repaired: list[str], now: datetime) -> None:
    announce(connection, Topic.MANIFEST)
    shown = ", ".join(repaired[:SHOWN]) + (", …" if len(repaired) > SHOWN else "")
    logger.warning(
        "%s manifests had no planned look and nothing under way, so that they would never have run again; "
        "they are looked at now: %s",
        len(repaired),
        shown,
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
    audit.add(connection, new, actor=WATCHDOG, reason="no look was planned", now=now)
