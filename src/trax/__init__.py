"""Trax: background work that must not be lost.

You write trains, typed pipelines of junctions. A manifest says which train runs when. Every job is an entry
in one work queue, is admitted by one dispatcher, and leaves a record of every attempt.

The packages, in the order in which a job passes through them:

    train/      1  what runs: junctions, routes, memory by type; no database
    schedule/   2  when it runs: declarations, cron, exclusions, what is due; pure functions
    queue       3  enqueue jobs
    dispatch/   4  which entries fit under the limits, and which worker or submitter gets them
    work/       5  the slots in which runs are executed
    admin/         the administrative trains: manifest manager, job dispatcher, run results, dead letters
    store/         the database: one implementation, two dialects
    records/       frozen values: what the tables hold
    host/          the app object and its parts
    submitters/    other executors of runs: HTTP, Celery, Ray, SQS
    web/           the HTTP API and the dashboard
    cli/           the `trax` command
    testing/       test support for users and for Trax itself

Imports point down only; ARCHITECTURE.md draws the layers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trax.app.app import Trax
    from trax.engine.actor import acting
    from trax.engine.submitter import Refused, Submission, Submitter
    from trax.errors import (
        Conflict,
        EntryCancelled,
        InvalidInput,
        NotFound,
        RunCancelled,
        RunInterrupted,
        RunTimedOut,
        TraxError,
    )
    from trax.records import DeadLetter, LogLine, Manifest, ManifestGroup, Metadata, Reason, WorkQueueEntry
    from trax.records.audit import Actor
    from trax.records.schedule import Calendar
    from trax.schedule import Group, Item, cron, every, exclude, fire_all
    from trax.train import (
        Cancel,
        Cancellation,
        Cancelled,
        Done,
        Failed,
        Interrupted,
        Junction,
        Outcome,
        Retry,
        RetryAfter,
        Route,
        Snooze,
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
    "Submission",
    "Submitter",
    "Train",
    "Trax",
    "TraxError",
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

_HOMES = {
    "trax.engine.submitter": "Refused Submission Submitter",
    "trax.errors": "Conflict EntryCancelled InvalidInput NotFound RunCancelled RunInterrupted RunTimedOut "
    "TraxError",
    "trax.engine.actor": "acting",
    "trax.app.app": "Trax",
    "trax.records": "DeadLetter LogLine Manifest ManifestGroup Metadata Reason WorkQueueEntry",
    "trax.records.audit": "Actor",
    "trax.records.schedule": "Calendar",
    "trax.schedule": "Group Item cron every exclude fire_all",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `trax --help` does not load a database library."""
    if name not in __all__:
        raise AttributeError(f"module 'trax' has no attribute {name!r}")
    home = next((module for module, names in _HOMES.items() if name in names.split()), "trax.train")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
