"""Runs (`Metadata`), their log lines, progress and junction timings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from trax.clock import TextDuration
from trax.records.states import LogLevel, State

if TYPE_CHECKING:
    from collections.abc import Iterable


MESSAGE_CHARACTERS: Final = 4000

LOGGER_CHARACTERS: Final = 500

EXCEPTION_CHARACTERS: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLogLine:
    """A log line to be written; long text is already cut."""

    metadata_id: int
    """The run that logged it."""
    created_at: datetime
    """When, by the database's clock."""
    level: LogLevel
    """The log level."""
    logger: str
    """The name of the logger."""
    message: str
    """The message."""
    exception: str | None = None
    """The exception logged with it."""
    stack_trace: str | None = None
    """The traceback of the exception."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine(NewLogLine):
    """One log line of a run."""

    id: int
    """Its id; pass it to read the lines after it."""


ADMINISTRATIVE_PREFIX: Final = "trax."
"""The prefix of the names of administrative trains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """One attempt to run a train (a run). A retry is a new run; a terminal state is final."""

    id: int
    """Its id."""
    external_id: str
    """The external id of its job, shared with the entry and with all other attempts."""
    train: str
    """The name of the train."""
    state: State
    """`pending`, `in_progress`, and finally `completed`, `failed` or `cancelled`."""
    manifest: str | None = None
    """The external id of its manifest, if it has one."""
    group: str | None = None
    """The name of the group it counts for."""
    priority: int = 0
    """The priority of its entry."""
    attempt: int = 1
    """The number of the attempt, from 1."""
    input: Any = None
    """Its input, as JSON; a note if it was too large to be saved."""
    output: Any = None
    """Its output, as JSON; a note with the reason if it could not be saved."""
    created_at: datetime
    """When it was dispatched, or when it started, if it was never queued."""
    started_at: datetime | None = None
    """When it started."""
    ended_at: datetime | None = None
    """When it ended."""
    failure_junction: str | None = None
    """The junction that failed."""
    failure_exception: str | None = None
    """The name of the exception, or `Cancelled`, `Interrupted`, `Snooze`, `WorkerLost`, …"""
    failure_reason: str | None = None
    """The message of the exception, or why the run was stopped."""
    stack_trace: str | None = None
    """The traceback."""
    parent_id: int | None = None
    """The id of the run that started this one with `app.run`."""
    submitter: str | None = None
    """The submitter that executes it; `local`: Trax's own workers."""
    worker: int | None = None
    """The id of the worker that holds or held it."""
    host: str | None = None
    """The host it ran on."""
    progress: float | None = None
    """The progress it reported, from 0 to 1."""
    current_junction: str | None = None
    """The junction that runs now."""
    cancel_requested: bool = False
    """Whether it was asked to stop."""
    junction_started_at: datetime | None = None
    """When the current junction started."""
    progress_message: str | None = None
    """The message of its last progress report."""
    host_environment: str | None = None
    """The environment of its worker, such as `kubernetes`."""
    host_instance_id: str | None = None
    """The instance of its worker, such as the name of a pod."""
    host_labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """The labels of its worker (setting `host_labels`)."""
    junctions: tuple[JunctionTiming, ...] = ()
    """The start and duration of each junction, if there is more than one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """A run that starts now in this process, without an entry (`app.run`). `input` is JSON text."""

    external_id: str
    train: str
    input: str | None = None
    parent_id: int | None = None
    timeout_seconds: float | None = None
    host: str | None = None
    worker_id: int | None = None
    exempt: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressUpdate:
    """Progress of a run in progress. If `progress` is None, the last reported value stays."""

    metadata_id: int
    started_at: datetime
    current_junction: str | None
    junction_started_at: datetime | None
    progress: float | None = None
    progress_message: str | None = None


@dataclass(frozen=True, slots=True)
class JunctionTiming:
    """One junction of a run: when it started, and how long it took."""

    name: str
    started_at: datetime
    duration: TextDuration


def timings_to_json(steps: Iterable[tuple[str, float, float]]) -> str:
    """Steps are (name, seconds since the start of the run, duration in seconds)."""
    rows = [[name, round(after, 6), round(seconds, 6)] for name, after, seconds in steps]
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":"))


def timings_from_json(text: str | None, started_at: datetime | None) -> tuple[JunctionTiming, ...]:
    """Parse the steps of a run; none if the text cannot be read, in a row edited by hand."""
    if text is None or started_at is None:
        return ()
    try:
        return tuple(
            JunctionTiming(str(name), started_at + timedelta(seconds=after), timedelta(seconds=seconds))
            for name, after, seconds in json.loads(text)
        )
    except (ArithmeticError, RecursionError, TypeError, ValueError):
        return ()
