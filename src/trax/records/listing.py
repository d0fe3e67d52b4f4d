"""Pages and counts of lists, and the filters of each kind of record."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

from trax.records.states import DeadLetterStatus, LogLevel, Origin, QueueStatus, ScheduleType, State

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPage(Generic[T]):
    """One page of items: records by id, newest first; manifests, groups and workers in ascending order.

    `before` and `after` compare keys: `before=7` are the records with an id (or a name) below 7, `after=7`
    those above, whatever the order of the list. Pass `older` as `before` for the page with the lower keys,
    and `newer` as `after` for the one with the higher keys; None: there is no such page.

    A search without a suitable index reads a bounded number of rows. If it stopped at that bound, `complete`
    is False, and the cursor continues from there, however few items were found.
    """

    items: tuple[T, ...]
    older: Any = None
    newer: Any = None
    complete: bool = True


COUNT_LIMIT: Final = 10_000
"""Counting stops here, to bound its cost; a larger number is an estimate."""


@dataclass(frozen=True, slots=True)
class Count:
    """A number, and whether it is exact or an estimate."""

    number: int
    exact: bool = True

    def __str__(self) -> str:
        return str(self.number) if self.exact else f"about {self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Filter of runs. `since` and `until` apply to `created_at`; `external_id` may be a prefix.

    Runs of administrative trains are left out, unless `admin` is true or `train` names one.
    """

    state: State | None = None
    train: str | None = None
    manifest: str | None = None
    group: str | None = None
    parent_id: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    external_id: str | None = None
    admin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFilter:
    """Filter of entries of the work queue."""

    external_id: str | None = None
    status: QueueStatus | None = None
    train: str | None = None
    manifest: str | None = None
    group: str | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFilter:
    """Filter of log lines: of this `level` or higher, of one run, with this `text` in the message."""

    level: LogLevel | None = None
    text: str | None = None
    metadata_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFilter:
    """Filter of manifests: `text` is part of the external id, `depends_on` is the parent.

    Retired manifests are left out, unless `retired` is True (only those) or None (all).
    """

    group: str | None = None
    train: str | None = None
    enabled: bool | None = None
    schedule_type: ScheduleType | None = None
    depends_on: str | None = None
    text: str | None = None
    retired: bool | None = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """Filter of dead letters; a `fingerprint` is one kind of failure."""

    status: DeadLetterStatus | None = None
    manifest: str | None = None
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """Filter of dashboard sessions: those of one user, not expired at this time."""

    now: datetime
    user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Filter of audit entries. `target` is the id or name of an affected record."""

    actor: str | None = None
    action: str | None = None
    noun: str | None = None
    target: str | None = None
    since: datetime | None = None
    until: datetime | None = None
