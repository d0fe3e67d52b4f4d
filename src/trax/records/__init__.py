"""Frozen values: the rows of the tables as callers see them, and the values that decisions use."""

from __future__ import annotations

from trax.records.dead_letter import DeadLetter
from trax.records.manifest import Manifest, ManifestGroup
from trax.records.metadata import JunctionTiming, LogLine, Metadata
from trax.records.states import (
    DeadLetterStatus,
    LogLevel,
    ManifestOrigin,
    MisfirePolicy,
    Origin,
    QueueStatus,
    ScheduleType,
    State,
)
from trax.records.status import Reason
from trax.records.work_queue_entry import WorkQueueEntry
from trax.records.worker import WorkerRecord

__all__ = [
    "DeadLetter",
    "DeadLetterStatus",
    "JunctionTiming",
    "LogLevel",
    "LogLine",
    "Manifest",
    "ManifestGroup",
    "ManifestOrigin",
    "Metadata",
    "MisfirePolicy",
    "Origin",
    "QueueStatus",
    "Reason",
    "ScheduleType",
    "State",
    "WorkQueueEntry",
    "WorkerRecord",
]
