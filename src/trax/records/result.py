"""The result of a run as its manifest needs it, and the change of the manifest's row."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from trax.records.schedule import Timing


class ResultKind(StrEnum):
    """The kinds of results, for a manifest."""

    SUCCESS = "success"
    FAILURE = "failure"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestResult:
    """The result of one run of a manifest; `metadata_id` is None if it was cancelled before a run existed.

    Of a failure, `error` is the text, `raised` are the class names of the exception (for `give_up_on`),
    `gives_up` says whether the train itself does not want a retry, and `delay` is the wait that it requested.
    """

    manifest_id: int
    kind: ResultKind
    ended_at: datetime
    attempt: int = 1
    error: str | None = None
    raised: tuple[str, ...] = ()
    gives_up: bool = False
    delay: timedelta | None = None
    metadata_id: int | None = None


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
