"""Write the results of submitting runs, in one short transaction after the call of the submitter.

A failed hand-over is not a failed run: no train was started, so it does not count as a retry. The entry goes
back to the queue and gets a new run, up to `max_dispatch_attempts` times.
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
from trax.store.savepoint import RowsRefused, savepoint

if TYPE_CHECKING:
    from trax.settings import Settings
    from trax.store import Connection

logger = logging.getLogger(__name__)

JUNCTION: Final = "dispatch_jobs"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionResults:
    """The runs a submitter accepted, and those it did not. `deadline` is that of the hand-over."""

    accepted: Sequence[int]
    failed: Sequence[FailedHandOff]
    deadline: datetime


def record_submission_results(
    connection: Connection, results: SubmissionResults, settings: Settings, *, now: datetime
) -> None:
    """Mark the accepted runs; put the entries of the others back, or give them up."""
    hand_off.mark_submitted(connection, results.accepted, now=now)
    if not results.failed:
        return
    failed = hand_off.fail(connection, results.failed, junction=JUNCTION, until=results.deadline, now=now)
    if not failed:
        return
    # The manager may have left these manifests without a next due time while their runs were active.
    manifests.mark_due(
        connection, [run.manifest_id for run in failed if run.manifest_id is not None], now=now
    )
    entries = hand_off.entries_of(connection, (run.external_id for run in failed))
    errors = {run.metadata_id: f"{run.failure_exception}: {run.failure_reason}" for run in results.failed}
    entries = [entry for entry in entries if entry.metadata_id in errors]
    _put_back_or_give_up(connection, entries, errors, settings, now)
    announce(connection, Topic.WORK_QUEUE, Topic.MANIFEST)  # capacity is free, and entries are queued again


def _put_back_or_give_up(
    connection: Connection, entries: Sequence[Any], errors: dict[int, str], settings: Settings, now: datetime
) -> None:
    moments: dict[int, datetime] = {}
    given_up: list[Any] = []
    for entry in entries:
        pause = pause_after(
            entry.dispatch_attempts + 1,
            max_attempts=settings.max_dispatch_attempts,
            interval=settings.job_dispatcher_polling_interval,
            max_pause=settings.max_retry_delay,
        )
        if pause is None:
            given_up.append(entry)
        else:
            moments[entry.id] = now + pause
    _put_back(connection, moments)
    _give_up(connection, given_up, errors, settings, now)


def _put_back(connection: Connection, moments: dict[int, datetime]) -> None:
    """Put them back in one statement, or one by one if one is refused: a newer entry may have replaced it."""
    if not moments:
        return
    try:
        with savepoint(connection):
            hand_off.put_back(connection, moments)
    except RowsRefused:
        for entry_id, moment in moments.items():
            _put_back_one(connection, entry_id, moment)


def _put_back_one(connection: Connection, entry_id: int, moment: datetime) -> None:
    try:
        with savepoint(connection):
            hand_off.put_back(connection, {entry_id: moment})
    except RowsRefused:
        logger.info(
            "entry %s was not handed over; a newer entry replaces it",
            entry_id,
            extra={"entry_id": entry_id},
        )
        hand_off.supersede(connection, [entry_id])


def _give_up(
    connection: Connection, entries: Sequence[Any], errors: dict[int, str], settings: Settings, now: datetime
) -> None:
    """Write dead letters; the manifest manager writes those of manifests. The entries do not change."""
    if not entries:
        return
    if settings.max_dispatch_attempts:
        hand_off.count_attempt(connection, [entry.id for entry in entries])
    reasons = {entry.id: _reason(entry.dispatch_attempts + 1, errors[entry.metadata_id]) for entry in entries}
    of_manifests = {
        entry.manifest_id: (reasons[entry.id], entry.metadata_id)
        for entry in entries
        if entry.manifest_id is not None
    }
    alone = [
        dead_letters.build_from_entry(entry, reasons[entry.id], retry_count=entry.dispatch_attempts + 1)
        for entry in entries
        if entry.manifest_id is None
    ]
    dead_letters.add(connection, alone, now=now)
    if of_manifests:
        hand_off.give_up_manifests(connection, of_manifests, now=now)


def _reason(attempts: int, error: str) -> str:
    times = "once" if attempts == 1 else f"{attempts} times"
    return f"its dispatch failed {times}, at last with {error}; it never ran"
