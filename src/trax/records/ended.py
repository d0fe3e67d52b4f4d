"""How a run ended, as far as its manifest is concerned, and what that changes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from trax.records.when import Timing


class EndKind(StrEnum):
    """What a run means to its manifest."""

    SUCCESS = "success"
    FAILURE = "failure"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEnd:
    """One run of a manifest that ended. `gives_up`: no further attempt would help."""

    manifest_id: int
    kind: EndKind
    ended_at: datetime
    gives_up: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestChange:
    """What a manifest's row says after the runs that ended."""

    id: int
    enabled: bool
    failure_count: int
    last_successful_run: datetime | None
    next_scheduled_run: datetime | None
    next_due_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A manifest whose row is locked while the end of its runs is written down."""

    id: int
    enabled: bool
    failure_count: int
    max_retries: int
    next_due_at: datetime | None
    timing: Timing
