"""Findings in single records of the history: impossible states, lost entries, orphans, mismatches. No I/O."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from trax.records.manifest import RetryPolicy
from trax.records.states import ACTIVE, DeadLetterStatus, QueueStatus, State
from trax.records.verification import FindingKind, HistoryFinding
from trax.store.history import SEALED_INPUT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from trax.store.history import EntryRow, LetterRow, RunRow

IMPOSSIBLE: Final = FindingKind.IMPOSSIBLE_STATE
ACTIVE_STATES: Final = frozenset(state.value for state in ACTIVE)
INTERRUPTIONS: Final = frozenset({"Interrupted", "Snooze", "NoWorker"})
"""The exceptions of cancelled runs whose entries go back to the queue."""
CANCELLATIONS: Final = INTERRUPTIONS | {"Cancelled"}
EARLY: Final = timedelta(minutes=1)
"""An entry that starts this long before its time starts too early."""
COLUMNS: Final = {"manifest_id": "manifest", "group_id": "group", "external_id": "external id"}


class KnownWorkers(NamedTuple):
    """The highest id that a worker ever had, and since when each that has a row has run."""

    last_id: int
    started_at: Mapping[int, datetime]


def check_run(run: RunRow) -> Iterator[HistoryFinding]:
    """The findings of a run and its entry."""
    for problem in (*_time_problems(run), *_state_problems(run)):
        yield HistoryFinding(IMPOSSIBLE, "run", (run.id,), f"run {run.id} {problem}")
    if run.submitter is not None or run.own_entry_id is not None:
        yield from _check_entry_of_run(run)
        yield from _check_copy(run)
    if run.state == State.CANCELLED:
        yield from _check_cancelled(run)
    if not run.has_parent:
        text = f"run {run.id} was started by run {run.parent_id}, which does not exist"
        yield HistoryFinding(FindingKind.ORPHAN, "run", (run.id,), text)


def check_worker(run: RunRow, workers: KnownWorkers) -> Iterator[HistoryFinding]:
    """The finding of a run that ended in a worker which cannot have held it."""
    if run.ended_at is None:
        return
    problem = None
    if run.worker_id is None:
        if run.state == State.COMPLETED and run.own_entry_id is not None:
            problem = "completed, but no worker had claimed it"
    elif not 0 < run.worker_id <= workers.last_id:
        problem = f"ended in worker {run.worker_id}, which never existed"
    else:
        started_at = workers.started_at.get(run.worker_id)
        if started_at is not None and run.ended_at < started_at:
            problem = f"ended in worker {run.worker_id}, which started later, at {started_at:%H:%M:%S.%f}"
    if problem is not None:
        yield HistoryFinding(FindingKind.UNKNOWN_WORKER, "run", (run.id,), f"run {run.id} {problem}")


def attempts_overlap(run: RunRow, earlier: int) -> HistoryFinding:
    text = f"run {run.id} was admitted while run {earlier}, an attempt of the same job, was active"
    return HistoryFinding(FindingKind.EXECUTED_TWICE, "run", (run.id, earlier), text)


def wrongly_exempt(run: RunRow) -> HistoryFinding:
    is_exempt = "exempt from the limits" if run.exempt else "not exempt from the limits"
    declared = "is not exempt" if run.exempt else "is exempt"
    text = f"run {run.id} is recorded as {is_exempt}, but train {run.train!r} {declared} on every server"
    return HistoryFinding(FindingKind.OUTSIDE_LIMITS, "run", (run.id,), text)


def check_entry(entry: EntryRow, now: datetime) -> Iterator[HistoryFinding]:
    """The findings of an entry and the run that it points to."""
    own = f"entry {entry.id}"
    for problem in _find_missing_of_entry(entry):
        yield HistoryFinding(
            FindingKind.ORPHAN, "entry", (entry.id,), f"{own} {problem}, which does not exist"
        )
    if entry.status == QueueStatus.DISPATCHED and entry.run_id is None:
        run = "no run" if entry.metadata_id is None else f"run {entry.metadata_id}, which does not exist"
        text = f"{own} was dispatched and points to {run}: its job is lost"
        yield HistoryFinding(FindingKind.ENTRY_LOST, "entry", (entry.id,), text)
    for problem in (*_start_problems(entry, now), *_entry_problems(entry)):
        yield HistoryFinding(IMPOSSIBLE, "entry", (entry.id,), f"{own} {problem}")
    if _has_wrong_priority(entry):
        text = (
            f"{own} waits with group priority {entry.group_priority}; its group has {entry.expected_priority}"
        )
        yield HistoryFinding(FindingKind.WRONG_PRIORITY, "entry", (entry.id,), text)
    if entry.attempt > 1 and (most := max_attempts(entry)) is not None and entry.attempt > most:
        text = f"{own} is at attempt {entry.attempt}; its policy allows {most}"
        yield HistoryFinding(FindingKind.TOO_MANY_ATTEMPTS, "entry", (entry.id,), text)


def max_attempts(entry: EntryRow) -> int | None:
    """How many attempts the policy of an entry allows; None if it is in no record."""
    if entry.manifest_id is not None:
        changed_at = entry.manifest_changed_at
        is_known = changed_at is not None and changed_at < entry.created_at
        return max(1, entry.max_retries or 0) if is_known else None
    policy = RetryPolicy.from_json(entry.retry)
    return None if policy is None else max(1, policy.max_attempts)


def is_unanswered_failure(entry: EntryRow) -> bool:
    """Whether the last run of a job without a manifest failed, and it is not queued again.

    Then there must be a dead letter.
    """
    is_over = entry.status == QueueStatus.DISPATCHED and entry.run_state == State.FAILED
    return is_over and entry.manifest_id is None


def is_withdrawn(entry: EntryRow) -> bool:
    """Whether only an operator can have cancelled an entry: it was not parked, and has no manifest."""
    is_single = entry.manifest_id is None and entry.parked is None
    return is_single and entry.status == QueueStatus.CANCELLED and entry.metadata_id is None


def failure_lost(entry: EntryRow) -> HistoryFinding:
    run_id = entry.run_id or 0
    text = f"run {run_id} of entry {entry.id} failed, but it was not retried and has no dead letter"
    return HistoryFinding(FindingKind.FAILURE_LOST, "run", (run_id,), text)


def check_letter(letter: LetterRow, last_run_id: int) -> Iterator[HistoryFinding]:
    """The findings of a dead letter; `last_run_id` is the highest id of a run."""
    own = f"dead letter {letter.id}"
    if letter.resolved_at is not None and letter.resolved_at < letter.dead_lettered_at:
        text = f"{own} was resolved before it was written"
        yield HistoryFinding(IMPOSSIBLE, "dead letter", (letter.id,), text)
    for problem in _find_missing_of_letter(letter, last_run_id):
        text = f"{own} {problem}, which does not exist"
        yield HistoryFinding(FindingKind.ORPHAN, "dead letter", (letter.id,), text)
    if is_requeue_missing(letter) and is_requeue_decidable(letter):
        text = f"{own} is marked as retried, but no entry was queued for it"
        yield HistoryFinding(FindingKind.REQUEUE_LOST, "dead letter", (letter.id,), text)
    for problem in _letter_problems(letter):
        yield HistoryFinding(FindingKind.WRONG_LETTER, "dead letter", (letter.id,), f"{own} {problem}")


def is_requeue_missing(letter: LetterRow) -> bool:
    """Whether a dead letter was requeued and neither an entry nor a run shows it."""
    is_retried = letter.status == DeadLetterStatus.RETRIED
    return is_retried and not letter.has_entry and letter.retry_metadata_id is None


def is_requeue_decidable(letter: LetterRow) -> bool:
    """Whether the entry of a requeued letter must still exist.

    The cleanup deletes the oldest runs of a train first: while the last run of the letter exists, those of
    its entry do too. A letter of a manifest or with a unique key may have used the entry of another job.
    """
    return letter.last_run_id is not None and letter.manifest_id is None and letter.unique_key is None


def _time_problems(run: RunRow) -> Iterator[str]:
    """A run that a worker has claimed ahead, or that was cancelled before its start, has not started."""
    created, started, ended = run.created_at, run.started_at, run.ended_at
    if started is not None and started < created:
        yield f"started at {started:%H:%M:%S.%f}, before it was created at {created:%H:%M:%S.%f}"
    if ended is not None and ended < (started or created):
        yield f"ended at {ended:%H:%M:%S.%f}, before it {'started' if started else 'was created'}"
    if (run.state in ACTIVE_STATES) is not (ended is None):
        yield f"is {run.state} but has {'no end' if ended is None else 'ended'}"
    if run.state == State.PENDING and started is not None:
        yield "is pending but has started"
    if run.state == State.COMPLETED and started is None:
        yield "completed, but has not started"


def _state_problems(run: RunRow) -> Iterator[str]:
    if run.state == State.PENDING and run.worker_id is not None:
        yield f"is pending but worker {run.worker_id} has claimed it"
    if run.state == State.IN_PROGRESS and run.worker_id is None:
        yield "is in progress, but no worker has claimed it"
    if run.state == State.COMPLETED and run.has_failure:
        yield "completed, but has a failure"
    if run.state == State.FAILED and not run.has_failure:
        yield "failed, but has no failure"
    if run.entry_attempt is not None and run.attempt > run.entry_attempt:
        yield f"is attempt {run.attempt} of entry {run.entry_id}, which is at attempt {run.entry_attempt}"


def _check_copy(run: RunRow) -> Iterator[HistoryFinding]:
    """The finding of a run that was not admitted as a copy of its entry."""
    if run.submitter is None:
        text = f"run {run.id} has entry {run.own_entry_id}, but no submitter, as if it were one of app.run"
        yield HistoryFinding(FindingKind.OUTSIDE_LIMITS, "run", (run.id,), text)
    if run.difference is not None and run.difference != SEALED_INPUT:
        column = COLUMNS.get(run.difference, run.difference)
        text = f"run {run.id} has another {column} than its entry {run.entry_id}"
        yield HistoryFinding(FindingKind.RECORD_MISMATCH, "run", (run.id,), text)


def _check_cancelled(run: RunRow) -> Iterator[HistoryFinding]:
    if run.failure_exception not in CANCELLATIONS and not run.cancel_requested:
        text = f"run {run.id} is cancelled, but nobody has cancelled it"
        yield HistoryFinding(FindingKind.CANCELLED_BY_NOBODY, "run", (run.id,), text)
    is_last = run.entry_run_id == run.id and run.entry_status == QueueStatus.DISPATCHED
    if is_last and run.failure_exception in INTERRUPTIONS:
        text = f"run {run.id} was interrupted, but its entry {run.entry_id} was not put back into the queue"
        yield HistoryFinding(FindingKind.INTERRUPTION_LOST, "run", (run.id,), text)


def _check_entry_of_run(run: RunRow) -> Iterator[HistoryFinding]:
    """The entry of a completed or active run must point to that run: no run follows it."""
    is_active = run.state in ACTIVE_STATES
    if run.own_entry_id is None:
        text = f"run {run.id} was admitted, but from no entry"
        yield HistoryFinding(FindingKind.ORPHAN, "run", (run.id,), text)
    if run.own_entry_id is None or not (is_active or run.state == State.COMPLETED):
        return
    verb = "is active" if is_active else "completed"
    if run.entry_id is None:
        text = f"run {run.id} {verb}, but its entry does not exist"
        yield HistoryFinding(FindingKind.ORPHAN, "run", (run.id,), text)
        return
    if run.entry_run_id == run.id:
        return
    ids = (run.id,) if run.entry_run_id is None else (run.id, run.entry_run_id)
    again = f"run {run.entry_run_id} was started" if run.entry_run_id else f"it is {run.entry_status}"
    text = f"run {run.id} of entry {run.entry_id} {verb}, but {again} for the same entry"
    yield HistoryFinding(FindingKind.EXECUTED_TWICE, "run", ids, text)


def _find_missing_of_entry(entry: EntryRow) -> Iterator[str]:
    """What an entry points to and that does not exist. A group without entries may be deleted."""
    if entry.manifest_id is not None and entry.manifest_row is None:
        yield f"points to manifest {entry.manifest_id}"
    is_queued = entry.status == QueueStatus.QUEUED
    if is_queued and entry.group_id is not None and entry.group_row is None:
        yield f"waits in group {entry.group_id}"
    if entry.dead_letter_id is not None and entry.letter_row is None:
        yield f"was queued for dead letter {entry.dead_letter_id}"


def _has_wrong_priority(entry: EntryRow) -> bool:
    if entry.group_id is not None and entry.group_row is None:
        return False
    return entry.expected_priority is not None and entry.group_priority != entry.expected_priority


def _start_problems(entry: EntryRow, now: datetime) -> Iterator[str]:
    if entry.dispatched_at is not None and entry.dispatched_at < entry.created_at:
        yield "was dispatched before it was created"
    if entry.scheduled_at is not None:
        is_ready = entry.status == QueueStatus.QUEUED and entry.ready
        taken_at = now if is_ready else entry.dispatched_at
        if taken_at is not None and taken_at + EARLY < entry.scheduled_at:
            verb = "is ready" if is_ready else "was dispatched"
            yield f"{verb} before its time, {entry.scheduled_at:%Y-%m-%d %H:%M:%S}Z"


def _entry_problems(entry: EntryRow) -> Iterator[str]:
    if entry.status == QueueStatus.QUEUED:
        if entry.metadata_id is not None:
            yield f"is queued but points to run {entry.metadata_id}"
        if entry.ready and entry.parked is not None:
            yield "is ready and parked"
    if entry.run_id is None or entry.status != QueueStatus.DISPATCHED:
        if entry.status == QueueStatus.CANCELLED and entry.run_state in (*ACTIVE_STATES, State.COMPLETED):
            yield f"is cancelled, but its run {entry.run_id} is {entry.run_state}"
        return
    if not entry.is_own_run:
        yield f"points to run {entry.run_id}, which belongs to another entry"
    elif entry.run_attempt != entry.attempt:
        yield f"is at attempt {entry.attempt}, but its run {entry.run_id} is attempt {entry.run_attempt}"


def _find_missing_of_letter(letter: LetterRow, last_run_id: int) -> Iterator[str]:
    """What a dead letter points to and that does not exist. Its last run may have been deleted."""
    is_open = letter.status == DeadLetterStatus.AWAITING_INTERVENTION
    if is_open and letter.group_id is not None and letter.group_row is None:
        yield f"belongs to group {letter.group_id}"
    if (letter.last_metadata_id or 0) > last_run_id:
        yield f"is about run {letter.last_metadata_id}"
    if letter.retry_metadata_id is not None and letter.retry_row is None:
        yield f"was retried by run {letter.retry_metadata_id}"


def _letter_problems(letter: LetterRow) -> Iterator[str]:
    """A letter is about a run that failed, or that was cancelled by its time limit, and is the last one."""
    run_id = letter.last_metadata_id
    if letter.last_run_state is not None and letter.last_run_state not in (State.FAILED, State.CANCELLED):
        yield f"is about run {run_id}, which is {letter.last_run_state}"
    if letter.manifest_id is not None or letter.last_run_id is None:
        return
    if letter.last_run_train != letter.train:
        yield f"is about run {run_id} of train {letter.last_run_train!r}; its own train is {letter.train!r}"
    if letter.later_run_id is not None or letter.is_queued_again:
        later = "it is queued" if letter.later_run_id is None else f"run {letter.later_run_id} followed"
        yield f"is about run {run_id}, whose job was also retried: {later}"
