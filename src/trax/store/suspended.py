"""Sessions of processes that were stopped in the middle of a transaction, and hold what others wait for.

A process may be suspended, or its machine may vanish, between two statements. Its locks, the gate's among
them, would be held until the network gives it up, which can take hours. No code of users runs inside our
transactions, so one that has been idle for long belongs to nobody who could go on with it.

Ours are known by their names, which every connection of a store gets (`engine.session_name`): sessions that
belong to the same program, with the same URL, but not to Trax are never touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import text

from trax.store.dialect import is_sqlite
from trax.store.engine import APPLICATION_NAME, MARK

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy import Connection

END: Final = text(
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
    """End our own sessions that stand still inside a transaction for so long; returns how many those were.

    SQLite frees the lock of a process that is gone by itself, and waits for one that is suspended.
    """
    if is_sqlite(connection):
        return 0
    given = {"ours": APPLICATION_NAME, "mark": MARK, "seconds": idle_for.total_seconds()}
    return sum(bool(ended) for ended in connection.execute(END, given).scalars())
