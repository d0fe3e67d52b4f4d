"""Tables `worker` (processes with a heartbeat) and `setting` (edited settings)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Boolean, Column, Integer, false

from trax.records.worker import WorkerKind
from trax.store.schema.define import identity
from trax.store.types import ByteOrderText, JsonText, Utc

if TYPE_CHECKING:
    from sqlalchemy import Table

    from trax.store.schema.define import Definer

HEARTBEAT_TABLE = {"fillfactor": 50, "autovacuum_vacuum_threshold": 200, "autovacuum_vacuum_scale_factor": 0}
"""Storage options for a small table with frequent updates: free space on each page avoids index updates."""


def worker(define: Definer) -> Table:
    return define.table(
        "worker",
        identity(),
        Column("host", ByteOrderText, nullable=False),
        Column("host_environment", ByteOrderText, nullable=False),
        Column("host_instance_id", ByteOrderText, nullable=False),
        Column("host_labels", JsonText),
        Column("pid", Integer, nullable=False),
        Column("version", ByteOrderText, nullable=False, server_default=""),
        Column("app_version", ByteOrderText, nullable=False, server_default=""),
        Column("app", ByteOrderText, nullable=False, server_default="default"),
        Column("declares", ByteOrderText),
        Column("concurrency", Integer, nullable=False),
        Column("dispatches", Boolean, nullable=False, server_default=false()),
        Column("kind", ByteOrderText, nullable=False, server_default="worker"),
        Column("trains", JsonText, nullable=False),
        Column("aliases", JsonText),
        Column("groups", JsonText),
        Column("routes", JsonText),
        Column("settings", JsonText),
        Column("started_at", Utc, nullable=False),
        Column("heartbeat_at", Utc, nullable=False),
        define.one_of("kind", WorkerKind),
        define.check("concurrency_range", "concurrency >= 0"),
        storage=HEARTBEAT_TABLE,
    )


def setting(define: Definer) -> Table:
    return define.table(
        "setting",
        Column("name", ByteOrderText, primary_key=True),
        Column("value", JsonText, nullable=False),
        Column("updated_at", Utc, nullable=False),
    )
