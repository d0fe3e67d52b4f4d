"""What a submitter answered, written down: one short transaction after the call.

A failed hand-off is not a failed run: no train was started, so nothing counts against its retries. The entry
goes back to the queue, and leads to a new run, until it was tried often enough.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from trax.dispatch.submit import pause_after
from trax.events import Topic
from trax.store import dead_letters, hand_off, manifests
from trax.store.announcing import announce
from trax.store.hand_off import FailedHandOff
from trax.store.savepoint import Refused, savepoint

if TYPE_CHECKING:
    from trax.settings import Settings
    from trax.store import Connection

logger = logging.getLogger(__name__)

JUNCTION: Final = "dispatch_jobs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What a submitter said: the runs it took, and those it did not. `until` is the time we had."""

    accepted: Sequence[int]
    failed: Sequence[FailedHandOff]
    until: datetime


def note_answers(connection: Connection, answers: Answers, settings: Settings, *, now: datetime) -> None:
    """Mark what was taken, and put back or give up what was not."""
    hand_off.note_accepted(connection, answers.accepted, now=now)
    if not answers.failed:
        return
    failed = hand_off.fail(connection, answers.failed, junction=JUNCTION, until=answers.until, now=now)
    if not failed:
        return
    # While the run was active the manager may have left its manifest until the end of it, which this is.
    manifests.look_at(connection, [run.manifest_id for run in failed if run.manifest_id is not None], now=now)
    entries = hand_off.entries_of(connection, (run.external_id for run in failed))
    whys = {one.metadata_id: f"{one.failure_exception}: {one.failure_reason}" for one in answers.failed}
    _put_back_or_give_up(connection, [one for one in entries if one.metadata_id in whys], whys, settings, now)
    announce(connection, Topic.WORK_QUEUE, Topic.MANIFEST)  # a place is free, and entries are back


def _put_back_or_give_up(
    connection: Connection, entries: Sequence[Any], whys: dict[int, str], settings: Settings, now: datetime
) -> None:
    moments: dict[int, datetime] = {}
    given_up: list[Any] = []
    for entry in entries:
        pause = pause_after(
            entry.dispatch_attempts + 1,
            most=settings.max_dispatch_attempts,
            interval=settings.job_dispatcher_polling_interval,
            longest=settings.max_retry_delay,
        )
        if pause is None:
            given_up.append(entry)
        else:
            moments[entry.id] = now + pause
    _put_back(connection, moments)
    _give_up(connection, given_up, whys, settings, now)


def _put_back(connection: Connection, moments: dict[int, datetime]) -> None:
    """All at once, and one by one when one of them is refused: a newer entry has taken its place."""
    if not moments:
        return
    try:
        with savepoint(connection):
            hand_off.put_back(connection, moments)
    except Refused:
        for entry_id, moment in moments.items():
            _put_back_alone(connection, entry_id, moment)


def _put_back_alone(connection: Connection, entry_id: int, moment: datetime) -> None:
    try:
        with savepoint(connection):
            hand_off.put_back(connection, {entry_id: moment})
    except Refused:
        logger.info(
            "entry %s was not handed over, and a newer one has taken its place",
            entry_id,
            extra={"entry_id": entry_id},
        )
        hand_off.supersede(connection, [entry_id])


def _give_up(
    connection: Connection, entries: Sequence[Any], whys: dict[int, str], settings: Settings, now: datetime
) -> None:
    """The entry stays as it is, and a person is told. The manager writes the letters of manifests."""
    if not entries:
        return
    if settings.max_dispatch_attempts:
        hand_off.count_attempt(connection, [entry.id for entry in entries])
    reasons = {entry.id: _reason(entry.dispatch_attempts + 1, whys[entry.metadata_id]) for entry in entries}
    of_manifests = {
        entry.manifest_id: (reasons[entry.id], entry.metadata_id)
        for entry in entries
        if entry.manifest_id is not None
    }
    alone = [
        dead_letters.of_entry(entry, reasons[entry.id], retry_count=entry.dispatch_attempts + 1)
        for entry in entries
        if entry.manifest_id is None
    ]
    dead_letters.add(connection, alone, now=now)
    if of_manifests:
        hand_off.give_up_manifests(connection, of_manifests, now=now)


def _reason(attempts: int, why: str) -> str:
    times = "once" if attempts == 1 else f"{attempts} times"
    return f"its dispatch failed {times}, at last with {why}; it never ran"
