"""Findings in single records of the history: impossible states, lost entries, orphans. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trax.records.states import ACTIVE, DeadLetterStatus, QueueStatus, State
from trax.records.verification import FindingKind, HistoryFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trax.store.history import EntryRow, LetterRow, RunRow

IMPOSSIBLE: Final = FindingKind.IMPOSSIBLE_STATE
ACTIVE_STATES: Final = frozenset(state.value for state in ACTIVE)


def check_run(run: RunRow) -> Iterator[HistoryFinding]:
    """The findings of a run and its entry."""
    for problem in _run_problems(run):
        yield HistoryFinding(IMPOSSIBLE, "run", (run.id,), f"run {run.id} {problem}")
    if run.submitter is not None:
        yield from _check_entry_of_run(run)


def attempts_overlap(run: RunRow, earlier: int) -> HistoryFinding:
    text = f"run {run.id} was admitted while run {earlier}, an attempt of the same job, was active"
    return HistoryFinding(FindingKind.EXECUTED_TWICE, "run", (run.id, earlier), text)


def check_entry(entry: EntryRow) -> Iterator[HistoryFinding]:
    """The findings of an entry and the run that it points to."""
    own = f"entry {entry.id}"
    if entry.manifest_id is not None and entry.manifest_row is None:
        text = f"{own} points to manifest {entry.manifest_id}, which does not exist"
        yield HistoryFinding(FindingKind.ORPHAN, "entry", (entry.id,), text)
    is_queued = entry.status == QueueStatus.QUEUED
    if is_queued and entry.group_id is not None and entry.group_row is None:
        text = f"{own} waits in group {entry.group_id}, which does not exist"
        yield HistoryFinding(FindingKind.ORPHAN, "entry", (entry.id,), text)
    if entry.status == QueueStatus.DISPATCHED and entry.run_id is None:
        run = "no run" if entry.metadata_id is None else f"run {entry.metadata_id}, which does not exist"
        text = f"{own} was dispatched and points to {run}: its job is lost"
        yield HistoryFinding(FindingKind.ENTRY_LOST, "entry", (entry.id,), text)
    for problem in _entry_problems(entry):
        yield HistoryFinding(IMPOSSIBLE, "entry", (entry.id,), f"{own} {problem}")


def is_unanswered_failure(entry: EntryRow) -> bool:
    """Whether the last run of a job without a manifest failed, and it is not queued again.

    Then there must be a dead letter.
    """
    is_over = entry.status == QueueStatus.DISPATCHED and entry.run_state == State.FAILED
    return is_over and entry.manifest_id is None


def failure_lost(entry: EntryRow) -> HistoryFinding:
    run_id = entry.run_id or 0
    text = f"run {run_id} of entry {entry.id} failed, but it was not retried and has no dead letter"
    return HistoryFinding(FindingKind.FAILURE_LOST, "run", (run_id,), text)


def check_letter(letter: LetterRow) -> Iterator[HistoryFinding]:
    """The findings of a dead letter."""
    own = f"dead letter {letter.id}"
    if letter.resolved_at is not None and letter.resolved_at < letter.dead_lettered_at:
        text = f"{own} was resolved before it was written"
        yield HistoryFinding(IMPOSSIBLE, "dead letter", (letter.id,), text)
    is_open = letter.status == DeadLetterStatus.AWAITING_INTERVENTION
    if is_open and letter.group_id is not None and letter.group_row is None:
        text = f"{own} belongs to group {letter.group_id}, which does not exist"
        yield HistoryFinding(FindingKind.ORPHAN, "dead letter", (letter.id,), text)
    if is_requeue_missing(letter) and is_requeue_decidable(letter):
        text = f"{own} is marked as retried, but no entry was queued for it"
        yield HistoryFinding(FindingKind.REQUEUE_LOST, "dead letter", (letter.id,), text)


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


def _run_problems(run: RunRow) -> Iterator[str]:
    created, started, ended = run.created_at, run.started_at, run.ended_at
    if started is not None and started < created:
        yield f"started at {started:%H:%M:%S.%f}, before it was created at {created:%H:%M:%S.%f}"
    if ended is not None and ended < (started or created):
        yield f"ended at {ended:%H:%M:%S.%f}, before it {'started' if started else 'was created'}"
    if run.state == State.PENDING and started is not None:
        yield "is pending but has started"
    if run.state == State.COMPLETED and run.has_failure:
        yield "completed, but has a failure"
    if run.entry_attempt is not None and run.attempt > run.entry_attempt:
        yield f"is attempt {run.attempt} of entry {run.entry_id}, which is at attempt {run.entry_attempt}"


def _check_entry_of_run(run: RunRow) -> Iterator[HistoryFinding]:
    """The entry of a completed or active run must point to that run: no run follows it."""
    is_active = run.state in ACTIVE_STATES
    if not is_active and run.state != State.COMPLETED:
        return
    if run.entry_id is None:
        if is_active:
            text = f"run {run.id} is active, but its entry does not exist"
            yield HistoryFinding(FindingKind.ORPHAN, "run", (run.id,), text)
        return
    if run.entry_run_id == run.id:
        return
    ids = (run.id,) if run.entry_run_id is None else (run.id, run.entry_run_id)
    verb = "is active" if is_active else "completed"
    again = f"run {run.entry_run_id} was started" if run.entry_run_id else "it is queued"
    text = f"run {run.id} of entry {run.entry_id} {verb}, but {again} for the same entry"
    yield HistoryFinding(FindingKind.EXECUTED_TWICE, "run", ids, text)


def _entry_problems(entry: EntryRow) -> Iterator[str]:
    if entry.dispatched_at is not None and entry.dispatched_at < entry.created_at:
        yield "was dispatched before it was created"
    if entry.status == QueueStatus.QUEUED and entry.metadata_id is not None:
        yield f"is queued but points to run {entry.metadata_id}"
    if entry.run_id is None or entry.status != QueueStatus.DISPATCHED:
        if entry.status == QueueStatus.CANCELLED and entry.run_state in ACTIVE_STATES:
            yield f"is cancelled, but its run {entry.run_id} is active"
        return
    if not entry.is_own_run:
        yield f"points to run {entry.run_id}, which belongs to another entry"
    elif entry.run_attempt != entry.attempt:
        yield f"is at attempt {entry.attempt}, but its run {entry.run_id} is attempt {entry.run_attempt}"
