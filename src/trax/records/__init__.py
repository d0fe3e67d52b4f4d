"""Frozen values: the rows of the tables as callers see them, and the values that decisions use.

states.py            states, statuses and other enums, and the allowed transitions
schedule.py          schedules, exclusions, misfire policies, timings
manifest.py          manifests and groups, the state of a manifest, decisions about it; retry policies
work_queue_entry.py  entries of the work queue, and new external ids
metadata.py          runs, log lines, progress, junction timings
result.py            the result of a run, for its manifest
dead_letter.py       dead letters, and fingerprints of failures
worker.py            registered processes and their heartbeats
audit.py             actors, what they changed, and sessions of the dashboard
listing.py           pages and counts of lists, and ids that a verb changed
nouns.py             what can be listed: the filters and columns of each noun
stats.py             totals of ended runs, and numbers of the dashboard
status.py            status, health, problems, reasons, findings
verification.py      the result of `trax verify`
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.lazy import lazy_names

if TYPE_CHECKING:
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

__getattr__ = lazy_names(
    __name__,
    {
        "trax.records.dead_letter": "DeadLetter",
        "trax.records.manifest": "Manifest ManifestGroup",
        "trax.records.metadata": "JunctionTiming LogLine Metadata",
        "trax.records.states": "DeadLetterStatus LogLevel ManifestOrigin MisfirePolicy Origin QueueStatus "
        "ScheduleType State",
        "trax.records.status": "Reason",
        "trax.records.work_queue_entry": "WorkQueueEntry",
        "trax.records.worker": "WorkerRecord",
    },
)
