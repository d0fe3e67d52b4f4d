"""Which records are meant: those of which all that is said is so; None: whatever it is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trax.records.states import LogLevel, Origin, QueueStatus, ScheduleType, State


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """`since` and `until` are about when a run was made; `external_id` may be its beginning.

    The runs of administrative trains are left out, unless `admin` wants them or `train` names one.
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
    """Entries of the work queue."""

    status: QueueStatus | None = None
    train: str | None = None
    manifest: str | None = None
    group: str | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFilter:
    """Lines of this `level` or a louder one, of one run or of all, with this `text` in their message."""

    level: LogLevel | None = None
    text: str | None = None
    metadata_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFilter:
    """Manifests with this `text` in their external id, or that wait for the one that `depends_on` names.

    `retired` ones are left out, unless it is True (only those) or None (all).
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
    """What operators did. `target` is an id or a name that it was done to."""

    actor: str | None = None
    action: str | None = None
    noun: str | None = None
    target: str | None = None
    since: datetime | None = None
    until: datetime | None = None
