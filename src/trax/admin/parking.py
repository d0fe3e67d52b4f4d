"""What nobody could start: it waits outside the gate and holds no place, until somebody comes who takes it.

The gate parks such entries when it meets them and takes them back when a worker registers that has their
train. What waits for too long becomes a dead letter. A run that was let in and that nobody takes any more,
since the last worker that had its train is gone, goes back to the queue.
"""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from trax.dispatch.fleet import Fleet, Takes
from trax.events import Topic
from trax.store import dead_letters, entry_retries, gate, hand_off, parking, workers
from trax.store.announcing import announce

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from trax.settings import Settings
    from trax.store import Connection
    from trax.store.gate import Candidate
    from trax.store.workers import FleetMark

logger = logging.getLogger(__name__)

AT_ONCE: Final = 5_000
"""How many entries one visit to the gate sets aside, or takes back."""
LOOK_EVERY: Final = timedelta(seconds=2)
"""How often parked entries are looked at although no worker has come or gone: a group may be new."""
SWEEP_EVERY: Final = timedelta(seconds=5)
"""How often the manager looks for what nobody takes: where jobs wait long for a slot, it would each cycle."""


class Fleets:
    """The fleet as this server knows it, read again when a worker has come or gone.

    `own` is what is there beside the rows: tests have workers only while they work.
    """

    def __init__(self, own: Callable[[], Fleet] | None = None) -> None:
        self._own = own
        self._mark: FleetMark | None = None
        self._read = Fleet()
        self._group_names: dict[int, str] = {}
        self._looked_at: datetime | None = None
        self._swept_at: datetime | None = None
        self._warned: set[str] = set()

    def now(self, connection: Connection, mark: FleetMark) -> Fleet:
        if mark != self._mark:
            self._read, self._mark, self._looked_at = read(connection), mark, None
        return self._read if self._own is None else self._own().joined_by(self._read)

    def of_rows(self, connection: Connection) -> Fleet:
        """The fleet as the rows say now, for those that look seldom."""
        fleet = read(connection)
        return fleet if self._own is None else self._own().joined_by(fleet)

    def group_of(self, connection: Connection, entries: Sequence[Candidate]) -> dict[int, str]:
        """The names of these entries' groups. A group keeps its name, so each is read once."""
        ids = {entry.group_id for entry in entries if entry.group_id is not None}
        unknown = ids - self._group_names.keys()
        if unknown:
            self._group_names |= parking.group_names(connection, unknown)
        return self._group_names

    def is_time_to_look(self, now: datetime) -> bool:
        """Whether parked entries are worth a look: a worker came or went, or some time has passed."""
        if _is_recent(self._looked_at, LOOK_EVERY, now):
            return False
        self._looked_at = now
        return True

    def is_time_to_sweep(self, now: datetime) -> bool:
        """Whether to look for what has waited too long, or was let in and waits in vain."""
        if _is_recent(self._swept_at, SWEEP_EVERY, now):
            return False
        self._swept_at = now
        return True

    def warn(self, fleet: Fleet, keys: set[str]) -> None:
        """Say once what waits for somebody who is not there; again when it has come and gone."""
        for key in sorted(keys - self._warned):
            text = "%s. Its entries wait outside the gate until a worker registers that takes it"
            logger.warning(text, fleet.why_not(key), extra={"train": parking.train_of(key)})
        self._warned |= keys

    def note_come(self, keys: set[str]) -> None:
        self._warned -= keys


def read(connection: Connection) -> Fleet:
    """What the rows of live workers and servers say."""
    rows = workers.fleet(connection)
    return Fleet(
        workers=tuple(
            Takes(
                frozenset((*json.loads(row.trains), *json.loads(row.aliases or "[]"))),
                None if row.groups is None else frozenset(json.loads(row.groups)),
            )
            for row in rows
            if row.kind == "worker"
        ),
        routes={train: to for row in rows for train, to in json.loads(row.routes or "{}").items()},
    )


def keep_startable(
    connection: Connection,
    fleets: Fleets,
    fleet: Fleet,
    candidates: list[Candidate],
    *,
    is_cut: bool,
    now: datetime,
) -> list[Candidate]:
    """Those of these entries that somebody could start; the others are parked.

    Where they fill the window, it is read further, so that a flood is set aside in a few visits. As long as
    there is nobody at all, they stay where they are: there is no one they could hold up.
    """
    startable = _startable(connection, fleets, fleet, candidates)
    if len(startable) == len(candidates):
        return candidates
    if fleet.is_empty:
        return []
    if is_cut:
        candidates = gate.first(connection, most=AT_ONCE)
        startable = _startable(connection, fleets, fleet, candidates)
    names = fleets.group_of(connection, candidates)
    kept = {entry.id for entry in startable}
    keys = {
        entry.id: fleet.key(entry.train, names.get(entry.group_id or 0))
        for entry in candidates
        if entry.id not in kept
    }
    parking.park(connection, keys, now=now)
    fleets.warn(fleet, set(keys.values()))
    return startable


def take_back(connection: Connection, fleets: Fleets, fleet: Fleet, *, now: datetime) -> int:
    """Put parked entries back into the queue whose worker has come; returns how many."""
    if fleet.is_empty or not fleets.is_time_to_look(now):
        return 0
    come = {key for key in parking.keys(connection) if fleet.has_come(key)}
    if not come:
        return 0
    fleets.note_come(come)
    return parking.unpark(connection, come, limit=AT_ONCE)


def expire(connection: Connection, fleet: Fleet, settings: Settings, *, now: datetime) -> list[int]:
    """Make a dead letter of what has waited for too long; returns the entries."""
    timeout = settings.unknown_train_timeout or settings.stale_pending_timeout
    late = parking.expire(connection, parked_before=now - timeout)
    reasons = {
        entry.id: f"{fleet.why_not(entry.parked)}; it waited for {timeout} and never ran" for entry in late
    }
    alone = [
        dead_letters.of_entry(entry, reasons[entry.id], retry_count=0)
        for entry in late
        if entry.manifest_id is None
    ]
    dead_letters.add(connection, alone, now=now)
    of_manifests = {
        entry.manifest_id: (reasons[entry.id], None) for entry in late if entry.manifest_id is not None
    }
    if of_manifests:
        hand_off.give_up_manifests(connection, of_manifests, now=now)
        announce(connection, Topic.MANIFEST)
    for entry in late:
        extra = {"entry_id": entry.id, "train": entry.train}
        logger.warning("entry %s became a dead letter: %s", entry.id, reasons[entry.id], extra=extra)
    if late:
        announce(connection, Topic.FINISHED)
    return [entry.id for entry in late]


def give_back_stranded(
    connection: Connection, fleet: Fleet, settings: Settings, *, now: datetime
) -> list[int]:
    """Put runs back that were let in, and that no live worker takes any more; returns which."""
    if fleet.is_empty:
        return []
    waiting = parking.stranded(connection, created_before=now - settings.worker_lost_after)
    stranded = [run for run in waiting if not fleet.can_start(run.train, run.group)]
    if not stranded:
        return []
    reason = "no live worker takes it any more; it went back to the queue"
    ids = [run.id for run in stranded]
    names = parking.give_back(connection, ids, reason=reason, now=now)
    entry_retries.put_back(connection, dict.fromkeys(names), attempts=0)
    logger.warning("runs %s went back to the queue: no live worker takes them any more", ids)
    return ids


def _is_recent(moment: datetime | None, period: timedelta, now: datetime) -> bool:
    return moment is not None and timedelta() <= now - moment < period


def _startable(
    connection: Connection, fleets: Fleets, fleet: Fleet, candidates: list[Candidate]
) -> list[Candidate]:
    if fleet.takes_any:
        return candidates
    if not fleet.is_by_group:
        trains = fleet.trains
        return [entry for entry in candidates if entry.train in trains]
    names = fleets.group_of(connection, candidates)
    return [entry for entry in candidates if fleet.can_start(entry.train, names.get(entry.group_id or 0))]
