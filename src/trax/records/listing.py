"""One page of a list, with the cursors of the next pages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

from trax.records.states import LogLevel, Origin, QueueStatus, ScheduleType, State

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPage(Generic[T]):
    """One page of items, newest first.

    For the next page pass `older` as `before`, for the previous one `newer` as `after`; None: there is no
    such page. A search without a suitable index reads a bounded number of rows. If it stopped at that bound,
    `complete` is False, and `older` continues from there, however few items were found.
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
class AuditFilter:
    """Filter of audit entries. `target` is the id or name of an affected record."""

    actor: str | None = None
    action: str | None = None
    noun: str | None = None
    target: str | None = None
    since: datetime | None = None
    until: datetime | None = None
