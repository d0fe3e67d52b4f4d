"""Sweep over the runs in the order of their admission: the attempts of each job, and the order of the queue.

No I/O. It keeps what is open at the moment of the sweep: jobs between two attempts, the runs of manifests
that are active, and of each train and group the few admissions that later ones may have to precede.
"""

from __future__ import annotations

from datetime import timedelta
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from trax.inspect.record_checks import INTERRUPTIONS
from trax.records.states import Origin, State
from trax.records.verification import FindingKind, HistoryFinding

if TYPE_CHECKING:
    from datetime import datetime

    from trax.store.history import RunRow

HELD_OPEN: Final = timedelta(hours=1)
"""For this long after its creation an entry may be invisible: its transaction may still be open."""
MAX_JOBS: Final = 200_000
"""How many jobs between two attempts are remembered."""
MAX_OPEN: Final = 64
"""How many admissions of one train and group are remembered."""
HAND_OVER: Final = "dispatch_jobs"
"""The junction of runs that no submitter accepted: their attempts do not count."""
SCHEDULED: Final = (Origin.SCHEDULE, Origin.RETRY)


class _Attempt(NamedTuple):
    """An ended run whose job was queued again, and the attempts that may follow."""

    run_id: int
    verb: str
    attempts: tuple[int, ...]


class JobSweep:
    """Checks that each attempt of a job follows the one before. Give it the runs by id."""

    def __init__(self, first_id: int, since: datetime | None) -> None:
        """Runs up to `first_id` are not swept: they were admitted before `since`."""
        self._first_id = first_id
        self._since = since
        self._open: dict[int, _Attempt] = {}
        self._swept = 0
        self._ended_first: dict[str, datetime] = {}
        self.forgotten = 0
        """How many jobs between two attempts were not remembered."""

    def add(self, run: RunRow) -> tuple[bool, HistoryFinding | None]:
        """Whether this is certainly the first run of its entry; and the finding, if there is one."""
        self._swept += 1
        before = None if run.entry_id is None else self._open.pop(run.entry_id, None)
        is_whole = before is None and self._has_all_runs(run)
        if run.ended_at is not None:
            first = self._ended_first.get(run.train)
            if first is None or run.ended_at < first:
                self._ended_first[run.train] = run.ended_at
        self._remember(run)
        if before is not None:
            return False, _check_attempt(run, before)
        if is_whole and run.attempt > 1 and run.manifest_id is None:
            text = f"run {run.id} is attempt {run.attempt} of entry {run.entry_id}; no earlier one exists"
            return False, HistoryFinding(FindingKind.ATTEMPT_MISSING, "run", (run.id,), text)
        return is_whole and run.attempt == 1, None

    def _has_all_runs(self, run: RunRow) -> bool:
        """Whether no earlier run of the entry can have been deleted, or precede the period.

        The cleanup deletes the runs of a train in the order of their ends: if one is left that had ended when
        the entry was created, nothing of that entry was deleted.
        """
        created_at = run.entry_created_at
        if created_at is None or (self._since is not None and created_at < self._since):
            return False
        if self._swept == run.id - self._first_id:
            return True
        first = self._ended_first.get(run.train)
        return first is not None and first <= created_at

    def _remember(self, run: RunRow) -> None:
        """Remember an ended run if its entry was queued again."""
        if run.entry_id is None or run.entry_run_id == run.id:
            return
        if run.state == State.FAILED:
            is_refused = run.failure_junction == HAND_OVER
            same, following = (run.attempt,), (run.attempt + 1,)
            attempts = (*same, *following) if is_refused else () if run.manifest_id else following
            verb = "failed"
        elif run.state == State.CANCELLED:
            is_interrupted = run.failure_exception in INTERRUPTIONS
            attempts = (run.attempt,) if is_interrupted else (run.attempt, run.attempt + 1)
            verb = "was interrupted" if is_interrupted else "was cancelled"
        else:
            return
        if len(self._open) < MAX_JOBS:
            self._open[run.entry_id] = _Attempt(run.id, verb, attempts)
        else:
            self.forgotten += 1


def _check_attempt(run: RunRow, before: _Attempt) -> HistoryFinding | None:
    if run.attempt in before.attempts:
        return None
    ids = (run.id, before.run_id)
    if not before.attempts:
        text = f"run {run.id} has the entry of run {before.run_id}, which failed: its manifest retries it"
        return HistoryFinding(FindingKind.EXECUTED_TWICE, "run", ids, text)
    text = f"run {run.id} is attempt {run.attempt} of entry {run.entry_id}"
    if run.attempt < before.attempts[0]:
        text += f", like run {before.run_id}, which {before.verb}"
        return HistoryFinding(FindingKind.EXECUTED_TWICE, "run", ids, text)
    text += f"; attempt {before.attempts[-1]} must follow run {before.run_id}, which {before.verb}"
    return HistoryFinding(FindingKind.ATTEMPT_MISSING, "run", ids, text)


class _Admission(NamedTuple):
    """An admission, and the visit to the gate before it that admitted the same train and group."""

    at: datetime
    visited_before: datetime | None
    position: tuple[int, datetime, int]
    run_id: int


class OrderSweep:
    """Finds jobs that were overtaken by others of the same train and group, which are under the same limits.

    A job is overtaken if one behind it was admitted earlier, although an earlier visit to the gate must have
    seen both: it had admitted the same train and group when the job was certainly visible.
    """

    def __init__(self, *, commits_in_order: bool) -> None:
        """`commits_in_order`: entries become visible in the order of their ids, as on SQLite."""
        self._commits_in_order = commits_in_order
        self._open: dict[tuple[int | None, str], list[_Admission]] = {}
        self._visited: dict[tuple[int | None, str], tuple[datetime, datetime | None]] = {}
        self._last_at: datetime | None = None

    def add(self, run: RunRow, *, is_first: bool) -> HistoryFinding | None:
        """Add the next run; `is_first`: its entry was never put back into the queue."""
        if run.entry_id is None or run.entry_created_at is None or run.submitter is None:
            return None
        now = run.created_at
        if self._last_at is not None and now < self._last_at:  # the clock was set back
            self._open.clear()
            self._visited.clear()
        self._last_at = now
        key = (run.group_id, run.train)
        last, before = self._visited.get(key, (None, None))
        visited_before = before if last == now else last
        self._visited[key] = (now, visited_before)
        position = (-(run.entry_priority or 0), run.entry_created_at, run.entry_id)
        stack = self._open.setdefault(key, [])
        overtaken_by = None
        if is_first and not run.entry_dispatch_attempts and stack:
            overtaken_by = self._find_overtaking(stack, run, position)
        while stack and stack[-1].position <= position:
            stack.pop()
        stack.append(_Admission(now, visited_before, position, run.id))
        del stack[:-MAX_OPEN]
        if overtaken_by is None:
            return None
        text = (
            f"run {run.id} of entry {run.entry_id} was admitted after run {overtaken_by}, although its entry "
            "comes first in the queue, has the same train and group, and could start"
        )
        return HistoryFinding(FindingKind.ORDER_INVERTED, "run", (run.id, overtaken_by), text)

    def _find_overtaking(
        self, stack: list[_Admission], run: RunRow, position: tuple[int, datetime, int]
    ) -> int | None:
        ready_at = run.entry_created_at or run.created_at
        is_delayed = run.entry_scheduled_at is not None and run.entry_scheduled_at > ready_at
        ready_at = run.entry_scheduled_at if is_delayed and run.entry_scheduled_at else ready_at
        for other in stack:
            if other.position <= position or other.at >= run.created_at or other.visited_before is None:
                continue
            was_visible = other.position[1] == position[1] or (
                self._commits_in_order and other.position[2] > position[2]
            )
            if other.visited_before > (ready_at if was_visible else ready_at + HELD_OPEN):
                return other.run_id
        return None


class ActiveInstance(NamedTuple):
    """A run of a schedule, and the earlier runs of the same schedule that were active at its admission."""

    run_id: int
    manifest_id: int
    queued_at: datetime
    others: tuple[int, ...]


class InstanceSweep:
    """Runs of the schedule of one manifest that were active together. Give it the runs by id."""

    def __init__(self) -> None:
        self._active: dict[int, list[tuple[int, datetime | None]]] = {}
        self._ends: list[tuple[datetime, int]] = []

    def count_before(
        self, run_id: int, manifest_id: int | None, origin: str | None, ended_at: datetime | None
    ) -> None:
        """Count a run that was admitted before the period of the sweep."""
        if manifest_id is not None and origin in SCHEDULED:
            self._count(run_id, manifest_id, ended_at)

    def _count(self, run_id: int, manifest_id: int, ended_at: datetime | None) -> None:
        self._active.setdefault(manifest_id, []).append((run_id, ended_at))
        if ended_at is not None:
            heappush(self._ends, (ended_at, manifest_id))

    def add(self, run: RunRow) -> ActiveInstance | None:
        """Add the next run; the others that were active, if there were any."""
        if run.manifest_id is None or run.origin not in SCHEDULED or run.entry_created_at is None:
            return None
        self._forget(run.created_at)
        others = tuple(run_id for run_id, _ in self._active.get(run.manifest_id, ()))
        if run.ended_at is None or run.ended_at > run.created_at:
            self._count(run.id, run.manifest_id, run.ended_at)
        if not others:
            return None
        return ActiveInstance(run.id, run.manifest_id, run.entry_created_at, others)

    def _forget(self, now: datetime) -> None:
        while self._ends and self._ends[0][0] <= now:
            _, manifest_id = heappop(self._ends)
            left = [each for each in self._active.get(manifest_id, ()) if each[1] is None or each[1] > now]
            if left:
                self._active[manifest_id] = left
            else:
                self._active.pop(manifest_id, None)
