"""The tables, defined once for both dialects.

define.py       helpers that define tables, checks and indexes
manifest.py     `manifest` and `manifest_group`
work_queue.py   `work_queue`
metadata.py     `metadata` (runs), `log` and `dead_letter`
operations.py   `worker`, `worker_identity`, `setting`, `audit`, `web_session`, `web_link`, `web_password`,
                `tally`, `group_tally`; the tables that servers lock

In PostgreSQL they are in the schema `trax` (`trax.metadata`), in SQLite they have a prefix
(`trax_metadata`). `tables(connection)` returns the right set, also for a caller's connection.

Some constraints are missing on purpose. `work_queue` and `log` have no foreign keys, `metadata` only that to
`manifest`, and none leads to these tables: they are written for every job, and a check of each row would cost
a quarter of the speed of a bulk load, and nearly half of the time that deleting old records takes. What
deletes a row clears the references to it (`runs/cleanup.py`, `dead_letters.purge`), and `trax verify` reports
those that lead nowhere. A manifest is never deleted, only retired: a transaction that writes an entry locks
the manifest row, and `manifest_seed.retire` waits for it. `metadata` has only the indexes that the engine
needs: each index costs time on every run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import MetaData, Table

from trax.store.schema.define import Definer
from trax.store.schema.manifest import manifest, manifest_group
from trax.store.schema.metadata import dead_letter, log, metadata
from trax.store.schema.operations import (
    audit,
    group_tally,
    locks,
    setting,
    tally,
    web_link,
    web_password,
    web_session,
    worker,
    worker_identity,
)
from trax.store.schema.work_queue import work_queue

if TYPE_CHECKING:
    from sqlalchemy import Connection


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one dialect."""

    all: MetaData
    manifest_group: Table
    manifest: Table
    metadata: Table
    dead_letter: Table
    work_queue: Table
    log: Table
    worker: Table
    worker_identity: Table
    setting: Table
    audit: Table
    tally: Table
    group_tally: Table
    web_session: Table
    web_link: Table
    web_password: Table


def tables(connection: Connection) -> Tables:
    return tables_for(connection.dialect.name)


@cache
def tables_for(dialect: str) -> Tables:
    define = Definer(dialect)
    locks(define)
    return Tables(
        all=define.tables,
        manifest_group=manifest_group(define),
        manifest=manifest(define),
        metadata=metadata(define),
        dead_letter=dead_letter(define),
        work_queue=work_queue(define),
        log=log(define),
        worker=worker(define),
        worker_identity=worker_identity(define),
        setting=setting(define),
        audit=audit(define),
        tally=tally(define),
        group_tally=group_tally(define),
        web_session=web_session(define),
        web_link=web_link(define),
        web_password=web_password(define),
    )
