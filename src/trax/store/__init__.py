"""The database: one implementation, two dialects.

A store function is a plain function `(connection, …) -> values`: one short transaction for a whole batch.
Async code calls `await store.call(fn, …)`; blocking code calls `store.run(fn, …)`.

store.py         open and migrate the database, run a function in a transaction
url.py           database URLs
engine.py        engines: connections, transactions, time limits; SQLite
postgresql.py    the engine of PostgreSQL: time limits, plans, pings
dialect.py       differences between PostgreSQL and SQLite: locks, clock, NOTIFY, row documents
pipeline.py      several statements in one round trip; COPY
direct.py        single statements from an event loop, without a thread
types.py         column types; text that is safe to store
faults.py        driver errors as `StoreError`; savepoints
repair.py        reset values that no cycle can read, in rows edited by hand
callers.py       store functions on a caller's connection
announce.py      topics announced to loops and processes on commit
listen.py        the LISTEN connection that receives them
schema/          the tables
migrations/      schema migrations, and `migrate`

manifests/       table `manifest`
groups.py        table `manifest_group`
declared_groups.py  what the code of each app declares of groups; retire those that nothing needs
queue/           table `work_queue`
gate.py          the gate, under its lock: promote delayed entries; read the queue, active runs, limits, slots
gate_memory.py   what a dispatcher remembers of its last visit, and where its next reads begin
quick_gate.py    a whole visit to the gate in one round trip, if it needs no decision
admission.py     admit entries: mark them dispatched, insert their runs
runs/            tables `metadata` and `log`
dead_letters.py  table `dead_letter`
workers.py       table `worker`
settings.py      table `setting`
audit.py         table `audit`
web_sessions.py  tables `web_session`, `web_link` and `web_password`
stats.py         tables `tally` and `group_tally`: totals of ended runs
secrets.py       encrypted inputs, in all tables

listing.py       pages and counts of lists
status.py        status, live view, gauges, change marks
inspect.py       facts for `trax why` and `trax db doctor`
storage.py       how tables and indexes are stored, for `trax db doctor`
history.py       the whole history in chunks, for `trax verify`
present.py       what is active, waiting or due now, and what exists twice, for `trax verify`
recorded_changes.py  what operators and servers have recorded about limits, for `trax verify`
foreign_jobs.py  job stores of other schedulers
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.lazy import lazy_names

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from trax.store.store import Store

__all__ = ["Connection", "Store"]

# So that declaring an app does not load SQLAlchemy.
__getattr__ = lazy_names(__name__, {"sqlalchemy": "Connection", "trax.store.store": "Store"})
