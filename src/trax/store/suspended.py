"""Terminate PostgreSQL sessions of suspended or lost processes that still hold locks.

A process may be suspended, or its machine lost, between two statements. Its locks, including the gate lock,
would be held until the network connection times out, which can take hours. No user code runs inside our
transactions, so a session that is idle in a transaction for long will not continue.

Our sessions are recognised by their application name (`engine.session_name`). Other sessions of the same
program and URL are never terminated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import text

from trax.store.dialect import is_sqlite
from trax.store.engine import APPLICATION_NAME, NAME_SUFFIX

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy import Connection

TERMINATE_IDLE: Final = text(
    """
    SELECT pg_terminate_backend(pid)
    FROM pg_stat_activity
    WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
      AND (application_name = :ours OR application_name LIKE '%' || :mark)
      AND state IN ('idle in transaction', 'idle in transaction (aborted)')
      AND state_change < clock_timestamp() - make_interval(secs => :seconds)
    """
)


def end_suspended(connection: Connection, *, idle_for: timedelta) -> int:
    """Terminate Trax sessions that have been idle in a transaction for `idle_for`. Returns how many.

    SQLite does not need this: it frees the locks of a dead process, and waits for a suspended one.
    """
    if is_sqlite(connection):
        return 0
    parameters = {"ours": APPLICATION_NAME, "mark": NAME_SUFFIX, "seconds": idle_for.total_seconds()}
    return sum(bool(terminated) for terminated in connection.execute(TERMINATE_IDLE, parameters).scalars())
