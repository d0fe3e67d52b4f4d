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
    from trax.records.audit import Actor
    from trax.records.schedule import Calendar
    from trax.schedule import Group, Item, cron, every, exclude, fire_all
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
    "Calendar",
    "Cancel",
    "Cancellation",
    "Cancelled",
    "Conflict",
    "DeadLetter",
    "Done",
    "EntryCancelled",
    "Failed",
    "Group",
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
    "Reason",
    "Refused",
    "Retry",
    "RetryAfter",
    "Route",
    "RunCancelled",
    "RunInterrupted",
    "RunTimedOut",
    "Snooze",
    "StoreUnavailable",
    "Submission",
    "Submitter",
    "Train",
    "Trax",
    "TraxError",
    "UnknownTrain",
    "WaitTimedOut",
    "WorkQueueEntry",
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
        "trax.records.audit": "Actor",
        "trax.records.schedule": "Calendar",
        "trax.schedule": "Group Item cron every exclude fire_all",
        "trax.train": "Cancellation Cancelled Done Failed Interrupted Junction Outcome Retry Route Train "
        "current extract junction short_circuit unchecked wired",
    },
)
