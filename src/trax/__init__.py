"""Trax: background work that must not be lost.

You write trains, typed pipelines of junctions. A manifest says which train runs when. Every job is an entry
in one work queue, is admitted by one dispatcher, and leaves a record of every attempt.

The packages, in the order in which a job passes through them; the head of each names its modules:

    train/       1  define: junctions, routes, memory by type; no database
    schedule/    2  when: declarations, cron, exclusions, what is due; pure functions
    engine/      3  decide and write: enqueue, manifest manager, job dispatcher, finish, dead letters
    worker/      4  run: claim runs, execute them in slots, write results, send heartbeats
    remote/      5  run elsewhere: hand runs over to HTTP, Celery, Ray or SQS workers
    store/          the database: one implementation, two dialects
    records/        frozen values: what the tables hold
    settings/       all settings with their defaults
    server/         the process: roles, loops, start, LISTEN
    app/            the app object and its resources: what a user holds
    inspect/        look: why, plan, lint, doctor, status
    web/            the HTTP API and the dashboard
    cli/            the `trax` command
    testing/        test support for users and for Trax itself

    errors.py       all errors, as one class tree
    clock.py        the clock, and waiting with a timeout
    events.py       events within this process, which wake loops
    forks.py        what a forked process must not share with its parent
    bounds.py       limits of numbers, durations, moments and JSON from outside
    escapes.py      make control characters in text visible
    lazy.py         import names of a package on first use
    masking.py      mask secrets by name, and passwords in URLs
    __main__.py     `python -m trax`

Imports point down only; ARCHITECTURE.md draws the layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.lazy import lazy_names

if TYPE_CHECKING:
    from trax.app.app import Trax
    from trax.engine.actor import acting
    from trax.engine.submitter import Refused, Submission, Submitter
    from trax.errors import (
        Cancel,
        Conflict,
        EntryCancelled,
        InvalidInput,
        NotFound,
        RetryAfter,
        RunCancelled,
        RunInterrupted,
        RunTimedOut,
        Snooze,
        StoreUnavailable,
        TraxError,
        UnknownTrain,
        WaitTimedOut,
    )
    from trax.records import DeadLetter, LogLine, Manifest, ManifestGroup, Metadata, Reason, WorkQueueEntry
    from trax.records.audit import Actor, AuditEntry, WebSession
    from trax.records.dead_letter import DeadLetterGroup
    from trax.records.listing import Count, RecordPage
    from trax.records.schedule import Calendar
    from trax.records.stats import (
        Blocks,
        FailingTrain,
        GroupGraph,
        GroupStats,
        Home,
        Overview,
        States,
        Throughput,
        TrainDuration,
    )
    from trax.records.verification import HistoryFinding, Verification
    from trax.records.work_queue_entry import QueuedEntry
    from trax.records.worker import RunningJob, WorkerRecord, WorkerView
    from trax.remote.http.endpoint import HttpEndpoint
    from trax.remote.receiver import Receiver
    from trax.schedule import Group, Item, cron, every, exclude, fire_all
    from trax.schedule.builder import Cursor
    from trax.settings import SettingOrigin, Settings
    from trax.train import (
        Cancellation,
        Cancelled,
        Done,
        Failed,
        Interrupted,
        Junction,
        Outcome,
        Retry,
        Route,
        Train,
        current,
        extract,
        junction,
        short_circuit,
        unchecked,
        wired,
    )

__all__ = [
    "Actor",
    "AuditEntry",
    "Blocks",
    "Calendar",
    "Cancel",
    "Cancellation",
    "Cancelled",
    "Conflict",
    "Count",
    "Cursor",
    "DeadLetter",
    "DeadLetterGroup",
    "Done",
    "EntryCancelled",
    "Failed",
    "FailingTrain",
    "Group",
    "GroupGraph",
    "GroupStats",
    "HistoryFinding",
    "Home",
    "HttpEndpoint",
    "Interrupted",
    "InvalidInput",
    "Item",
    "Junction",
    "LogLine",
    "Manifest",
    "ManifestGroup",
    "Metadata",
    "NotFound",
    "Outcome",
    "Overview",
    "QueuedEntry",
    "Reason",
    "Receiver",
    "RecordPage",
    "Refused",
    "Retry",
    "RetryAfter",
    "Route",
    "RunCancelled",
    "RunInterrupted",
    "RunTimedOut",
    "RunningJob",
    "SettingOrigin",
    "Settings",
    "Snooze",
    "States",
    "StoreUnavailable",
    "Submission",
    "Submitter",
    "Throughput",
    "Train",
    "TrainDuration",
    "Trax",
    "TraxError",
    "UnknownTrain",
    "Verification",
    "WaitTimedOut",
    "WebSession",
    "WorkQueueEntry",
    "WorkerRecord",
    "WorkerView",
    "acting",
    "cron",
    "current",
    "every",
    "exclude",
    "extract",
    "fire_all",
    "junction",
    "short_circuit",
    "unchecked",
    "wired",
]

__getattr__ = lazy_names(
    __name__,
    {
        "trax.app.app": "Trax",
        "trax.engine.actor": "acting",
        "trax.engine.submitter": "Refused Submission Submitter",
        "trax.errors": "Cancel Conflict EntryCancelled InvalidInput NotFound RetryAfter RunCancelled "
        "RunInterrupted RunTimedOut Snooze StoreUnavailable TraxError UnknownTrain WaitTimedOut",
        "trax.records": "DeadLetter LogLine Manifest ManifestGroup Metadata Reason WorkQueueEntry",
        "trax.records.audit": "Actor AuditEntry WebSession",
        "trax.records.dead_letter": "DeadLetterGroup",
        "trax.records.listing": "Count RecordPage",
        "trax.records.schedule": "Calendar",
        "trax.records.stats": "Blocks FailingTrain GroupGraph GroupStats Home Overview States Throughput "
        "TrainDuration",
        "trax.records.verification": "HistoryFinding Verification",
        "trax.records.work_queue_entry": "QueuedEntry",
        "trax.records.worker": "RunningJob WorkerRecord WorkerView",
        "trax.remote.http.endpoint": "HttpEndpoint",
        "trax.remote.receiver": "Receiver",
        "trax.schedule": "Group Item cron every exclude fire_all",
        "trax.schedule.builder": "Cursor",
        "trax.settings": "SettingOrigin Settings",
        "trax.train": "Cancellation Cancelled Done Failed Interrupted Junction Outcome Retry Route Train "
        "current extract junction short_circuit unchecked wired",
    },
)
