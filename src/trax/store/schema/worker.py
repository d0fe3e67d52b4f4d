"""The processes that run trains, and what operators set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Boolean, Column, Integer, false

from trax.records.worker import WorkerKind
from trax.store.schema.define import identity
from trax.store.types import JsonText, Utc, Words

if TYPE_CHECKING:
    from sqlalchemy import Table

    from trax.store.schema.define import Definer

BEATING_TABLE = {"fillfactor": 50, "autovacuum_vacuum_threshold": 200, "autovacuum_vacuum_scale_factor": 0}
"""For a small table updated all the time: room on the page, so that an update touches no index."""


def worker(define: Definer) -> Table:
    return define.table(
        "worker",
        identity(),
        Column("host", Words, nullable=False),
        Column("host_environment", Words, nullable=False),
        Column("host_instance_id", Words, nullable=False),
        Column("host_labels", JsonText),
        Column("pid", Integer, nullable=False),
        Column("version", Words, nullable=False, server_default=""),
        Column("app_version", Words, nullable=False, server_default=""),
        Column("app", Words, nullable=False, server_default="default"),
        Column("declares", Words),
        Column("concurrency", Integer, nullable=False),
        Column("dispatches", Boolean, nullable=False, server_default=false()),
        Column("kind", Words, nullable=False, server_default="worker"),
        Column("trains", JsonText, nullable=False),
        Column("aliases", JsonText),
        Column("groups", JsonText),
        Column("routes", JsonText),
        Column("settings", JsonText),
        Column("started_at", Utc, nullable=False),
        Column("heartbeat_at", Utc, nullable=False),
        define.one_of("kind", WorkerKind),
        define.check("concurrency_range", "concurrency >= 0"),
        storage=BEATING_TABLE,
    )


def setting(define: Definer) -> Table:
    return define.table(
        "setting",
        Column("name", Words, primary_key=True),
        Column("value", JsonText, nullable=False),
        Column("updated_at", Utc, nullable=False),
    )
