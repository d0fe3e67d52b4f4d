"""One attempt to run a train."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from trax.records.junction_timing import JunctionTiming
from trax.records.states import State

ADMINISTRATIVE: Final = "trax."
"""How the names of the trains begin that run the railway itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """One attempt to run a train. A retry is a new one; nothing leaves a terminal state."""

    id: int
    """Its number."""
    external_id: str
    """The name it shares with the entry it came from, and with every other try of it."""
    train: str
    """The name of the train."""
    state: State
    """`pending`, `in_progress`, and in the end `completed`, `failed` or `cancelled`."""
    manifest: str | None = None
    """The external id of the manifest that asked for it, if one did."""
    group: str | None = None
    """The name of the group it counts for."""
    priority: int = 0
    """That of its entry."""
    attempt: int = 1
    """Which try it is, from 1."""
    input: Any = None
    """What it was run with, as JSON; a note stands here if it was too large to be saved."""
    output: Any = None
    """What it returned, as JSON, in the same way."""
    created_at: datetime
    """When the gate let it through, or when it began, if it met no gate."""
    started_at: datetime | None = None
    """When it began."""
    ended_at: datetime | None = None
    """When it was over."""
    failure_junction: str | None = None
    """The junction that failed."""
    failure_exception: str | None = None
    """The name of the exception, or `Cancelled`, `Interrupted`, `Snooze`, `WorkerLost`, …"""
    failure_reason: str | None = None
    """Its message, or why the run was stopped."""
    stack_trace: str | None = None
    """The traceback."""
    parent_id: int | None = None
    """The run that ran this one with `app.run`."""
    submitter: str | None = None
    """Who executes it; `local` are our own workers."""
    worker: int | None = None
    """The number of the worker that holds or held it."""
    host: str | None = None
    """The machine it ran on."""
    progress: float | None = None
    """How far it has come, from 0 to 1, by its own account."""
    current_junction: str | None = None
    """The junction that runs."""
    cancel_requested: bool = False
    """Whether somebody asked it to stop."""
    junction_started_at: datetime | None = None
    """When the current junction began."""
    progress_message: str | None = None
    """Its own words about how far it has come."""
    junctions: tuple[JunctionTiming, ...] = ()
    """Each junction with its start and its seconds, if there is more than one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """A run that begins here and now, without having waited in the queue. `input` is JSON text."""

    external_id: str
    train: str
    input: str | None = None
    parent_id: int | None = None
    timeout_seconds: float | None = None
    host: str | None = None
    worker_id: int | None = None
    exempt: bool = False


class Ending(NamedTuple):
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
