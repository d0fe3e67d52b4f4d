"""The database: one implementation, two dialects.

A store function is a plain function `(connection, …) -> values`: one short transaction for a whole batch.
Async code comes through one door, `await store.call(fn, …)`; blocking code calls `store.run(fn, …)`.

    store.py        the door: opens, migrates, runs a function in a transaction
    engine.py       how connections open and transactions begin
    dialect.py      what truly differs: locks, clock, notify, copy, documents
    pipeline.py     several statements in one round trip
    announcing.py   what a transaction tells others when it commits
    listening.py    hearing it, on a connection of its own
    faults.py       driver errors, wrapped once
    schema/         the tables
    migrations/     how they came to be, and `migrate`
    work_queue.py   metadata.py   manifest_groups.py   one file a table
"""

from __future__ import annotations

from sqlalchemy import Connection

from trax.store.store import Store

__all__ = ["Connection", "Store"]
