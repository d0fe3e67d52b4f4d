"""The result of `trax verify`: overlaps of runs, densest windows, and findings in the history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class FindingKind(StrEnum):
    """What is wrong with a record."""

    LIMIT_EXCEEDED = "limit_exceeded"
    OUTSIDE_LIMITS = "outside_limits"
    KEY_OVERLAP = "key_overlap"
    EXECUTED_TWICE = "executed_twice"
    DUPLICATE = "duplicate"
    TOO_MANY_INSTANCES = "too_many_instances"
    SCHEDULED_TWICE = "scheduled_twice"
    TOO_MANY_ATTEMPTS = "too_many_attempts"
    ATTEMPT_MISSING = "attempt_missing"
    ORDER_INVERTED = "order_inverted"
    WRONG_PRIORITY = "wrong_priority"
    WAITS_TOO_LONG = "waits_too_long"
    ENTRY_LOST = "entry_lost"
    RUN_LOST = "run_lost"
    FAILURE_LOST = "failure_lost"
    INTERRUPTION_LOST = "interruption_lost"
    REQUEUE_LOST = "requeue_lost"
    WRONG_LETTER = "wrong_letter"
    RECORD_MISMATCH = "record_mismatch"
    CANCELLED_BY_NOBODY = "cancelled_by_nobody"
    UNKNOWN_WORKER = "unknown_worker"
    IMPOSSIBLE_STATE = "impossible_state"
    ORPHAN = "orphan"
    GROUP_REMOVED = "group_removed"
    OCCURRENCE_MISSED = "occurrence_missed"
    MANIFEST_SILENT = "manifest_silent"


@dataclass(frozen=True, slots=True)
class HistoryFinding:
    """One violation in the history: its kind, its records, and a sentence about it."""

    kind: FindingKind
    noun: str
    """The kind of the records: "run", "entry", "dead letter", "log line", "manifest" or "group"."""
    ids: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class DensestWindow:
    """The second or minute of the clock in which most runs were admitted, and how many."""

    admitted: int = 0
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """How many runs were active together, at most: of one group, or in total (`group` is None).

    `limit` is the one in force at that moment. None is no limit, if `is_limit_known`.
    """

    group: str | None
    admitted: int
    most: int
    at: datetime | None
    limit: int | None
    is_limit_known: bool
    exceeded: int = 0
    """How many runs were admitted although the limit was reached."""
    unknown: int = 0
    """How many runs were admitted while the limit is not known."""
    densest_second: DensestWindow = DensestWindow()
    densest_minute: DensestWindow = DensestWindow()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyOverlap:
    """How many runs of one unique key were active together, at most, and of which key."""

    runs: int
    most: int
    train: str | None = None
    unique_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What the history shows. `counts` has all findings by kind; `findings` the first of each kind.

    `undecided` counts by kind what may be a finding, where the records lack the data to decide; `notes` says
    why, and what could not be verified at all.
    """

    at: datetime
    since: datetime | None
    until: datetime | None
    runs: int
    entries: int
    dead_letters: int
    log_lines: int
    total: Overlap
    groups: tuple[Overlap, ...]
    keys: KeyOverlap
    findings: tuple[HistoryFinding, ...] = ()
    counts: Mapping[FindingKind, int] = field(default_factory=dict[FindingKind, int])
    undecided: Mapping[FindingKind, int] = field(default_factory=dict[FindingKind, int])
    notes: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        return not self.counts
