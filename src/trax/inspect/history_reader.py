"""Read the history chunk by chunk for `trax verify`, and collect the findings."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from trax.errors import count_noun
from trax.records.verification import FindingKind, HistoryFinding
from trax.store import history

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from trax.store import Connection, Store
    from trax.store.history import EntryRow, HistoryEnd, LetterRow, RunRow

    Progress = Callable[[int, int], None]
    """Called with the number of ids that have been read, and the number of all."""

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", "RunRow", "EntryRow", "LetterRow")

CHUNK: Final = 5_000
SPAN: Final = 100_000
"""How many ids are searched at once by a condition that few rows meet."""
MAX_FINDINGS: Final = 100
"""How many findings of one kind are listed; all are counted."""
UNDECIDED: Final = {
    FindingKind.LIMIT_EXCEEDED: "the limit at that time is in no record, or runs of app.run were too recent",
    FindingKind.OUTSIDE_LIMITS: "no record says which trains were exempt at that time",
    FindingKind.TOO_MANY_INSTANCES: "the manifest was changed since; max_instances may have been higher",
    FindingKind.TOO_MANY_ATTEMPTS: "the policy at that time is in no record",
    FindingKind.ATTEMPT_MISSING: "too many jobs were between two attempts at the same time",
    FindingKind.WAITS_TOO_LONG: "no server was there for long, or a limit is not known",
    FindingKind.RUN_LOST: "no server was running that would have ended them",
    FindingKind.FAILURE_LOST: "their dead letters may have been resolved and then deleted",
    FindingKind.REQUEUE_LOST: "their entries may have been deleted, or were those of another job",
    FindingKind.RECORD_MISMATCH: "their inputs hold secrets, which may have been encrypted again",
    FindingKind.CANCELLED_BY_NOBODY: "only the audit log says who cancelled entries; programs are not in it",
    FindingKind.GROUP_REMOVED: "they were deleted without a record; their limits are not known",
    FindingKind.OCCURRENCE_MISSED: "a change, a long run, a pause or an outage may explain it",
}
"""Which data is missing, by kind."""


class Findings:
    """The findings so far: the first of each kind, and counts of all."""

    def __init__(self) -> None:
        self.listed: list[HistoryFinding] = []
        self.counts: Counter[FindingKind] = Counter()
        self.undecided: Counter[FindingKind] = Counter()

    def add(self, findings: Iterable[HistoryFinding]) -> None:
        for finding in findings:
            self.counts[finding.kind] += 1
            if self.counts[finding.kind] <= MAX_FINDINGS:
                self.listed.append(finding)

    def leave_undecided(self, kind: FindingKind, count: int = 1) -> None:
        if count:
            self.undecided[kind] += count

    def notes(self) -> Iterator[str]:
        """What could not be decided, how often, and why."""
        for kind, count in self.undecided.items():
            yield f"{kind.replace('_', ' ')}: not decided in {count_noun(count, 'case')}: {UNDECIDED[kind]}"


class HistoryReader:
    """Reads the tables in chunks along their ids, within the period, and reports the progress."""

    def __init__(
        self, store: Store, end: HistoryEnd, since: datetime | None, until: datetime | None, chunk: int
    ) -> None:
        self.end = end
        self.since = since
        self.until = until
        self.on_progress: Progress | None = None
        self._store = store
        self._chunk = chunk
        self._all = max(1, end.run_id + end.entry_id + end.letter_id + end.line_id)
        self._done = 0

    def read(self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._store.read(history.read_only, function, *args, **kwargs)

    def rows(self, load: Callable[..., list[R]], after: int, last: int) -> Iterator[list[R]]:
        """The rows above `after`, up to `last`, chunk by chunk."""
        while after < last:
            rows = self.read(load, after=after, last=last, limit=self._chunk)
            if not rows:
                break
            yield rows
            self.advance(rows[-1].id - after)
            after = rows[-1].id
        self.advance(last - after)

    def spans(self, after: int, last: int) -> Iterator[tuple[int, int]]:
        """Ranges of ids, for reads with a condition that few rows meet."""
        for start in range(after, last, SPAN):
            stop = min(start + SPAN, last)
            yield start, stop
            self.advance(stop - start)

    def bounds(self, table: str, last: int) -> tuple[int, int]:
        """The ids of a table within the period: above the first, up to the second."""
        first = 0 if self.since is None else self.find(table, self.since, last)
        stop = last if self.until is None else self.find(table, self.until, last)
        self.advance(first + last - max(first, stop))
        return first, max(first, stop)

    def find(self, table: str, moment: datetime, last: int) -> int:
        return self.read(history.find_first, table, moment, last=last)

    def has(self, moment: datetime) -> bool:
        """Whether a moment is in the period."""
        return (self.since is None or moment >= self.since) and (self.until is None or moment < self.until)

    def advance(self, ids: int) -> None:
        self._done = min(self._all, self._done + ids)
        if self.on_progress is not None:
            self.on_progress(self._done, self._all)
