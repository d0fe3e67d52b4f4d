"""Load the records of one demo run, through the public API."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from trax.cli.demo.report import Records
from trax.cli.view import read_live_view
from trax.records.states import DeadLetterStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime

    from trax import Trax
    from trax.store import Connection

PAGE: Final = 1000


class DatedRecord(Protocol):
    """A record that lists are paged by."""

    @property
    def id(self) -> int: ...
    @property
    def created_at(self) -> datetime: ...


DatedRecordT = TypeVar("DatedRecordT", bound=DatedRecord)


async def database_now(app: Trax) -> datetime:
    """The time of the database, which the records use."""
    store = await app.parts.store.open()

    def read_now(connection: Connection) -> datetime:
        return store.now(connection)

    return await store.ask(read_now)


async def load_records(app: Trax, *, since: datetime) -> Records:
    """Load everything written since then, page by page."""
    store = await app.parts.store.open()
    status = (await asyncio.to_thread(read_live_view, app, store)).status
    return Records(
        since=since,
        until=status.now,
        waiting=status.ready + status.delayed,
        runs=await _load_newer(lambda page: app.executions.list(since=since, **page), since),
        entries=await _load_newer(lambda page: app.work_queue.list(**page), since),
        letters=await app.dead_letters.list(status=DeadLetterStatus.AWAITING_INTERVENTION, limit=PAGE),
    )


async def _load_newer(
    read: Callable[[dict[str, Any]], Awaitable[Sequence[DatedRecordT]]], since: datetime
) -> list[DatedRecordT]:
    found: list[DatedRecordT] = []
    before: int | None = None
    while True:
        page = await read({"before": before, "limit": PAGE})
        found += [record for record in page if record.created_at >= since]
        if len(page) < PAGE or page[-1].created_at < since:
            return found
        before = page[-1].id
