"""What gave up and waits for a person."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trax.records.states import DeadLetterStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """What gave up and waits for a person, who requeues or acknowledges it."""

    id: int
    manifest: str | None = None
    train: str
    status: DeadLetterStatus
    reason: str
    retry_count: int
    input: Any = None
    dead_lettered_at: datetime
    resolved_at: datetime | None = None
    note: str | None = None
    retry_metadata_id: int | None = None
