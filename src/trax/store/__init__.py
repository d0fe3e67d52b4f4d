"""The database: one implementation, two dialects.

A store function is a plain function `(connection, …) -> values`: one short transaction for a whole batch.
Async code calls `await store.call(fn, …)`; blocking code calls `store.run(fn, …)`.

    store.py        opens and migrates the database, runs a function in a transaction
    engine.py       engines: opening connections, beginning transactions, time limits
    dialect.py      differences between PostgreSQL and SQLite: locks, clock, NOTIFY, row documents
    pipeline.py     several statements in one round trip
    announcing.py   topics announced to other loops and processes on commit
    listening.py    the LISTEN connection that receives them
    faults.py       driver errors translated to `StoreError`
    schema/         the tables
    migrations/     schema migrations, and `migrate`
    work_queue.py   metadata.py   manifest_groups.py   one file a table
"""

from __future__ import annotations

from sqlalchemy import Connection

from trax.store.store import Store

__all__ = ["Connection", "Store"]
