"""The result of a run, and the change of its manifest's row that follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from trax.records.schedule import Timing

if TYPE_CHECKING:
    from trax.records.states import State

NO_RUN: Final = 0
"""The `metadata_id` of the result of an entry that was cancelled before a run existed."""


class ResultKind(StrEnum):
    """What a result counts as, for the manifest or for the entry of a single job."""

    SUCCESS = "success"
    FAILURE = "failure"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


class RunResult(NamedTuple):
    """How a run ended: the columns of its record, and what its retry policy and its manifest need.

    Only the worker that holds the record (`worker_id`) may write it. `output` and `junctions` are JSON text.
    """

    metadata_id: int
    external_id: str
    worker_id: int | None
    state: State
    kind: ResultKind
    train: str | None = None
    """The name of the train, for log lines."""
    manifest_id: int | None = None
    attempt: int = 1
    output: str | None = None
    junctions: str | None = None
    began: float | None = None
    """When its code began, by `perf_counter`; None if it did not, or not in this process."""
    failure_junction: str | None = None
    failure_exception: str | None = None
    failure_reason: str | None = None
    stack_trace: str | None = None
    raised: tuple[str, ...] = ()
    """The class names of the error, which `give_up_on` of a stored retry policy is matched against."""
    gives_up: bool = False
    """Whether the train itself does not want a retry; it applies if there is no stored policy."""
    delay: timedelta | None = None
    """The wait before the next attempt that the run itself requested."""

    @property
    def error(self) -> str:
        return f"{self.failure_exception}: {self.failure_reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestChange:
    """The new values of a manifest's row after its runs ended."""

    id: int
    enabled: bool
    failure_count: int
    lifetime_failures: int
    gave_up_reason: str | None
    failed_metadata_id: int | None
    retry_at: datetime | None
    attempt_cancelled: bool
    last_successful_run: datetime | None
    next_scheduled_run: datetime | None
    plan_after: datetime | None
    next_due_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedManifest:
    """A manifest whose row is locked while results of its runs are applied. `retry` is JSON text."""

    id: int
    enabled: bool
    retry: str | None = None
    failure_count: int
    lifetime_failures: int = 0
    gave_up_reason: str | None = None
    failed_metadata_id: int | None = None
    """The last run that counted as a failure; a dead letter refers to it."""
    retry_at: datetime | None = None
    attempt_cancelled: bool = False
    next_due_at: datetime | None
    is_retired: bool = False
    timing: Timing
