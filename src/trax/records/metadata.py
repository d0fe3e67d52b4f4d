"""One attempt to run a train."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from trax.records.junction_timing import JunctionTiming
from trax.records.states import State

ADMINISTRATIVE: Final = "trax."
"""How the names of the trains begin that run the railway itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """One attempt to run a train. A retry is a new one; nothing leaves a terminal state."""

    id: int
    external_id: str
    train: str
    state: State
    manifest: str | None = None
    group: str | None = None
    priority: int = 0
    attempt: int = 1
    input: Any = None
    output: Any = None
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    failure_junction: str | None = None
    failure_exception: str | None = None
    failure_reason: str | None = None
    stack_trace: str | None = None
    parent_id: int | None = None
    submitter: str | None = None
    worker: int | None = None
    host: str | None = None
    progress: float | None = None
    current_junction: str | None = None
    cancel_requested: bool = False
    junction_started_at: datetime | None = None
    progress_message: str | None = None
    junctions: tuple[JunctionTiming, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """A run that begins here and now, without having waited in the queue. `input` is JSON text."""

    external_id: str
    train: str
    input: str | None = None
    parent_id: int | None = None
    timeout_seconds: float | None = None
    host: str | None = None
    exempt: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a run ended. `worker_id` is the fence: only who holds the row may end it.

    `output` and `junctions` are JSON text.
    """

    metadata_id: int
    worker_id: int | None
    state: State
    output: str | None = None
    failure_junction: str | None = None
    failure_exception: str | None = None
    failure_reason: str | None = None
    stack_trace: str | None = None
    junctions: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressNote:
    """How far a run has come, told while it runs. Without a fraction, what it told before stays."""

    metadata_id: int
    current_junction: str | None
    junction_started_at: datetime | None
    progress: float | None = None
    progress_message: str | None = None
