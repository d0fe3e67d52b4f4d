"""Frozen values: the rows of the tables as callers see them, and the values that decisions use."""

from __future__ import annotations

from trax.records.dead_letter import DeadLetter
from trax.records.junction_timing import JunctionTiming
from trax.records.log_line import LogLine
from trax.records.manifest import Manifest, ManifestGroup
from trax.records.metadata import Metadata
from trax.records.reason import Reason
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
