"""The records of one visit, read through the same resources that an app's own code has."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from trax.cli.demo.report import Records
from trax.cli.view import look
from trax.records.states import DeadLetterStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime

    from trax import Trax
    from trax.store import Connection

PAGE: Final = 1000


class Dated(Protocol):
    """A record that lists can be read on from."""

    @property
    def id(self) -> int: ...
    @property
    def created_at(self) -> datetime: ...


DatedT = TypeVar("DatedT", bound=Dated)


async def moment(app: Trax) -> datetime:
    """The database's clock: it is the one that the records were written by."""
    store = await app.parts.store.opened()

    def asked(connection: Connection) -> datetime:
        return store.now(connection)

    return await store.ask(asked)


async def records(app: Trax, *, since: datetime) -> Records:
    """What was written since then. Everything newer is read, page by page, until something is older."""
    store = await app.parts.store.opened()
    status = (await asyncio.to_thread(look, app, store)).status
    return Records(
        since=since,
        until=status.now,
        waiting=status.ready + status.delayed,
        runs=await _newer(lambda page: app.executions.list(since=since, **page), since),
        entries=await _newer(lambda page: app.work_queue.list(**page), since),
        letters=await app.dead_letters.list(status=DeadLetterStatus.AWAITING_INTERVENTION, limit=PAGE),
    )


async def _newer(
    read: Callable[[dict[str, Any]], Awaitable[Sequence[DatedT]]], since: datetime
) -> list[DatedT]:
    found: list[DatedT] = []
    before: int | None = None
    while True:
        page = await read({"before": before, "limit": PAGE})
        found += [one for one in page if one.created_at >= since]
        if len(page) < PAGE or page[-1].created_at < since:
            return found
        before = page[-1].id
