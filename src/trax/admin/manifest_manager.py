"""The ManifestManager: decides what is due and writes it to the work queue. It never looks at capacity.

One cycle is one short transaction under the leader lock. It reads only manifests whose `next_due_at` has
come, so it costs as much as is due, however many manifests there are.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from datetime import datetime
from random import SystemRandom
from typing import TYPE_CHECKING, Final

from trax.admin.entries import create_entries
from trax.admin.parking import Fleets, expire, give_back_stranded
from trax.admin.policies import rules_of
from trax.admin.reaping import WORKER_LOST, count_as_failures, may_judge
from trax.admin.recording import leave_record
from trax.events import Topic
from trax.records.standing import Decision, Standing, ToDeadLetter, ToDefer, ToQueue, ToRest, ToWait
from trax.records.worker import Watch
from trax.schedule.decide import decide
from trax.schedule.fair import Waiting, chosen_fairly
from trax.settings import Settings
from trax.store import (
    Connection,
    dead_letters,
    manifest_groups,
    manifest_looks,
    manifests,
    metadata_sweeps,
    workers,
)
from trax.store.announcing import announce
from trax.store.hand_over_again import hand_over_again
from trax.store.leading import Begun
from trax.store.metadata_sweeps import Failure, Swept, Trouble
from trax.train import junction, train

if TYPE_CHECKING:
    from collections.abc import Sequence

logger = logging.getLogger(__name__)

_random = SystemRandom()

STALE_PENDING: Final = Failure(
    "reap_stale_pending_metadata", "StalePendingTimeout", "handed over, but not picked up in time"
)
STALE_IN_PROGRESS: Final = Failure(
    "reap_stale_in_progress_metadata", "StaleInProgressTimeout", "began long ago, and no live worker holds it"
)


@dataclass(frozen=True, slots=True)
class Turn:
    """Which cycle of this server it is; it decides who begins when not everyone can be served.

    `watch` is how long this server has watched the others; None lets it judge whoever is silent.
    """

    number: int = 0
    watch: Watch | None = None
    fleets: Fleets | None = None
    """Who could start what; None: nobody is asked."""


@dataclass(frozen=True, slots=True)
class Due:
    """The manifests to look at in this cycle; `more` says that others wait for the next."""

    manifest_ids: list[int]
    more: bool


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The runs that were asked to stop."""

    metadata_ids: list[int]


@dataclass(frozen=True, slots=True)
class ReapedPending:
    """Runs that nobody took up and that are given up, and those that are handed over once more."""

    runs: list[Swept]
    handed_over_again: list[int] = field(default_factory=list[int])


@dataclass(frozen=True, slots=True)
class ReapedInProgress:
    """Runs that nobody holds any more, and how many workers were found silent."""

    runs: list[Swept]
    lost_workers: int = 0


@dataclass(frozen=True, slots=True)
class Unstartable:
    """Entries that were given up since nobody takes them, and runs that went back to the queue for that."""

    given_up: list[int]
    put_back: list[int]


@dataclass(frozen=True, slots=True)
class Looked:
    """How each manifest stands, what happens to it, and the dead letters that were written."""

    decisions: list[tuple[Standing, Decision]]
    dead_letters: list[int]


@dataclass(frozen=True, slots=True)
class ToCreate:
    """The manifests that get an entry, and when to look at the others again."""

    entries: list[tuple[Standing, ToQueue]]
    looks: dict[int, datetime | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Managed:
    """What one cycle did. `more` asks for another one at once."""

    queued: list[int]
    dead_letters: list[int]
    timed_out: list[int]
    reaped: list[int]
    handed_over_again: list[int] = field(default_factory=list[int])
    lost_workers: int = 0
    unstartable: list[int] = field(default_factory=list[int])
    """Entries given up and runs put back because no live worker takes them."""
    deferred: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The manifests that this server could not evaluate, and why; they are left to others."""
    stale_priorities: bool = False
    """Whether a group's new priority is to be applied once more."""
    more: bool

    @property
    def changed(self) -> bool:
        return bool(
            self.queued
            or self.dead_letters
            or self.timed_out
            or self.reaped
            or self.handed_over_again
            or self.unstartable
        )


@junction
def load_manifests(
    turn: Turn, begun: Begun, connection: Connection, settings: Settings
) -> tuple[Due, Trouble]:
    """Whose moment to be looked at has come, chosen fairly among the groups, and whether runs need help."""
    limit = settings.max_work_queue_entries_per_cycle
    if limit is None or len(begun.waiting) <= limit:
        return Due([manifest_id for manifest_id, _ in begun.waiting], more=False), begun.trouble
    priorities = manifest_groups.priorities(connection, {group_id for _, group_id in begun.waiting})
    waiting = [Waiting(one, group_id, priorities.get(group_id, 0)) for one, group_id in begun.waiting]
    chosen = chosen_fairly(waiting, limit, turn=turn.number)
    return Due([one.manifest_id for one in chosen], more=True), begun.trouble


@junction
def cancel_timed_out_jobs(
    trouble: Trouble, connection: Connection, settings: Settings, now: datetime
) -> TimedOut:
    """Ask every run that takes longer than it may to stop, whether a manifest started it or not."""
    if not trouble.timed_out:
        return TimedOut([])
    default = settings.default_job_timeout
    return TimedOut(metadata_sweeps.cancel_timed_out(connection, default=default, now=now))


@junction
def reap_stale_pending_metadata(
    trouble: Trouble, connection: Connection, settings: Settings, now: datetime
) -> ReapedPending:
    """Have what nobody began handed over again, so often and no oftener: then it has failed."""
    if not trouble.stale_pending:
        return ReapedPending([])
    before, most = now - settings.stale_pending_timeout, settings.max_dispatch_attempts
    again = hand_over_again(connection, waiting_since=before, most=most, now=now)
    if again:
        logger.warning("nobody began runs %s in time: they are handed over again", again)
        announce(connection, Topic.PENDING)
    given_up = metadata_sweeps.fail_stale_pending(connection, STALE_PENDING, created_before=before, now=now)
    return ReapedPending(given_up, again)


@junction
def reap_stale_in_progress_metadata(
    turn: Turn, trouble: Trouble, connection: Connection, settings: Settings, now: datetime
) -> ReapedInProgress:
    """Fail what a silent worker held, at once, and what no worker ever held, after a long time.

    The worker's row goes first: one that beats in this moment either keeps it and its runs, or learns that it
    has lost both.
    """
    if not trouble.left_behind or not may_judge(turn.watch, settings, now):
        return ReapedInProgress([])
    alive_since = now - settings.worker_lost_after
    lost_workers = workers.forget_dead(connection, silent_since=alive_since)
    lost = metadata_sweeps.fail_left_behind(connection, WORKER_LOST, alive_since=alive_since, now=now)
    stale = metadata_sweeps.fail_stale_in_progress(
        connection,
        STALE_IN_PROGRESS,
        started_before=now - settings.stale_in_progress_timeout,
        alive_since=alive_since,
        now=now,
    )
    return ReapedInProgress([*lost, *stale], lost_workers)


@junction
def reap_unstartable_jobs(
    turn: Turn, trouble: Trouble, connection: Connection, settings: Settings, now: datetime
) -> Unstartable:
    """Give up what has waited too long for a worker, and put back what no worker takes any more."""
    if turn.fleets is None or not (trouble.unstartable and turn.fleets.is_time_to_sweep(now)):
        return Unstartable([], [])
    fleet = turn.fleets.of_rows(connection)
    return Unstartable(
        expire(connection, fleet, settings, now=now),
        give_back_stranded(connection, fleet, settings, now=now),
    )


@junction
def reap_failed_jobs(
    due: Due,
    pending: ReapedPending,
    in_progress: ReapedInProgress,
    connection: Connection,
    settings: Settings,
    now: datetime,
) -> Looked:
    """See how each manifest stands, after the reapers, and give up those that failed too often.

    The reaped runs are counted here and not by the reapers: a finish locks runs first and manifests after
    them, and so must a cycle.
    """
    swept = [*pending.runs, *in_progress.runs]
    count_as_failures(connection, swept, settings, now=now)
    reaped = [run.manifest_id for run in swept if run.manifest_id is not None]
    standings = manifest_looks.standings(
        connection,
        list(dict.fromkeys([*due.manifest_ids, *reaped])),
        default_threshold=settings.default_misfire_threshold,
    )
    rules = rules_of(settings, random=_random)
    decisions = [(standing, decide(standing, rules, now)) for standing in standings]
    return Looked(decisions, _dead_lettered(connection, decisions, now))


@junction
def determine_jobs_to_queue(looked: Looked) -> ToCreate:
    """Part those that get an entry from those that are looked at again later, or when something happens."""
    entries: list[tuple[Standing, ToQueue]] = []
    looks: dict[int, datetime | None] = {}
    for standing, decision in looked.decisions:
        match decision:
            case ToQueue():
                entries.append((standing, decision))
            case ToWait(until):
                looks[standing.id] = until
            case ToDefer(_, until):
                looks[standing.id] = until
            case ToRest(reason):
                logger.debug("manifest %s rests: %s", standing.external_id, reason)
                looks[standing.id] = None
            case ToDeadLetter():
                looks[standing.id] = None
    return ToCreate(entries, looks)


@junction
def create_work_queue_entries(
    wanted: ToCreate,
    due: Due,
    looked: Looked,
    timed_out: TimedOut,
    pending: ReapedPending,
    in_progress: ReapedInProgress,
    unstartable: Unstartable,
    connection: Connection,
    now: datetime,
) -> Managed:
    """Write the entries, and when to look again at everyone else; and a record, if the cycle did anything.

    The entries come last: the commit goes along with them, unless somebody still wants to read reaped runs.
    """
    manifest_looks.look_again(connection, wanted.looks)
    managed = Managed(
        queued=[],
        dead_letters=looked.dead_letters,
        timed_out=timed_out.metadata_ids,
        reaped=[run.metadata_id for run in (*pending.runs, *in_progress.runs)],
        handed_over_again=pending.handed_over_again,
        lost_workers=in_progress.lost_workers,
        unstartable=[*unstartable.given_up, *unstartable.put_back],
        deferred=[(one.external_id, it.reason) for one, it in looked.decisions if isinstance(it, ToDefer)],
        more=due.more,
    )
    if managed.changed or wanted.entries:
        leave_record(connection, manifest_manager, now=now)
    queued = create_entries(connection, wanted.entries, now=now, commit=not managed.reaped)
    return replace(managed, queued=queued)


manifest_manager = train(
    "trax.manifest_manager",
    load_manifests
    >> cancel_timed_out_jobs
    >> reap_stale_pending_metadata
    >> reap_stale_in_progress_metadata
    >> reap_unstartable_jobs
    >> reap_failed_jobs
    >> determine_jobs_to_queue
    >> create_work_queue_entries,
    extra=(Connection, Settings, datetime, Begun),
    exclude_from_max_active_jobs=True,
)


def _dead_lettered(
    connection: Connection, decisions: Sequence[tuple[Standing, Decision]], now: datetime
) -> list[int]:
    given_up = {one.id: decision for one, decision in decisions if isinstance(decision, ToDeadLetter)}
    if not given_up:
        return []
    rows = {row.id: row for row in manifests.rows_of_ids(connection, list(given_up))}
    letters = [
        {name: getattr(rows[one], name) for name in ("train", "group_id", "priority", "input")}
        | {"manifest_id": one, "reason": decision.reason, "retry_count": decision.failures}
        | {"last_metadata_id": rows[one].failed_metadata_id}
        for one, decision in given_up.items()
    ]
    return dead_letters.add(connection, letters, now=now)
