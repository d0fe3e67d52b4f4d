"""Behind a pooler in transaction mode, every transaction may get another server connection."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import event

from trax import Trax, every
from trax.records import State

if TYPE_CHECKING:
    from trax.store import Store

HOUR = timedelta(hours=1)


def forget_the_session(store: Store) -> list[str]:
    """Whatever a session holds is gone after each transaction; returns what it held, if anything."""
    leftovers: list[str] = []

    def on_checkin(connection: Any, _record: Any) -> None:
        if connection is None:
            return
        connection.rollback()
        connection.autocommit = True
        held = connection.execute(
            "SELECT 'lock ' || objid FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
            " UNION ALL SELECT 'prepared ' || name FROM pg_prepared_statements"
            " UNION ALL SELECT 'listening to ' || channel FROM pg_listening_channels() channel"
            " UNION ALL SELECT 'temporary ' || relname FROM pg_class WHERE relpersistence = 't'"
            " UNION ALL SELECT 'setting ' || name FROM pg_settings"
            " WHERE source = 'session'"
            " AND name IN ('jit', 'enable_bitmapscan', 'enable_seqscan', 'search_path', 'TimeZone',"
            " 'statement_timeout', 'lock_timeout')"
        )
        leftovers.extend(row[0] for row in held)
        connection.execute("DISCARD ALL")
        connection.autocommit = False

    for lane in (store, store.engine_lane):
        event.listen(lane._engine, "checkin", on_checkin)  # pyright: ignore[reportPrivateUsage]
    return leftovers


async def test_a_server_needs_nothing_that_outlives_a_transaction(postgres_url: str) -> None:
    pooler = f"{postgres_url}?prepare_statements=off"  # a real one is noticed when it greets us
    app = Trax(pooler, polling_interval=HOUR, local_polling_interval=HOUR, max_active_jobs=2)
    ran = asyncio.Queue[str]()

    @app.train
    async def note(word: str) -> None:
        ran.put_nowait(word)

    app.schedule(note, "first", "first", every(hours=1)).then_include(note, "second", "second")
    leftovers = forget_the_session(await app.context.store.open())

    async with asyncio.timeout(60), app:
        await app.queue_many(note, ["many"] * 600)
        heard = [await ran.get() for _ in range(602)]
        records = await app.executions.list(state=State.COMPLETED, limit=1)

    assert sorted(set(heard)) == ["first", "many", "second"]
    assert records
    assert leftovers == []
