"""Load the records of one demo run; print status lines where there is no terminal."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from trax.cli.demo.report import Records
from trax.cli.live_view import read_live_view
from trax.cli.output import say
from trax.errors import count_noun
from trax.records.states import DeadLetterStatus

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime

    from trax import Trax
    from trax.records.stats import LiveView
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
    store = await app.context.store.open()

    def read_now(connection: Connection) -> datetime:
        return store.now(connection)

    return await store.ask(read_now)


async def load_records(app: Trax, *, since: datetime) -> Records:
    """Load everything written since then, page by page."""
    store = await app.context.store.open()
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


INTERVAL_SECONDS: Final = 2.0


class LineOutput:
    """Output of a server to a pipe."""

    @property
    def terminal(self) -> None:
        return None

    def say(self, text: str, /) -> None:
        say(text)

    def status_view(self, app: Trax, heading: str, /) -> AbstractAsyncContextManager[None]:
        self.say(heading)
        return _print_while_running(app)


@asynccontextmanager
async def _print_while_running(app: Trax) -> AsyncGenerator[None]:
    task = asyncio.create_task(_print_status_lines(app), name="trax demo lines")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _print_status_lines(app: Trax) -> None:
    store = await app.context.store.open()
    while True:
        await asyncio.sleep(INTERVAL_SECONDS)
        say(status_line(await asyncio.to_thread(read_live_view, app, store)))


def status_line(live_view: LiveView) -> str:
    status = live_view.status
    at = f"{status.now:%H:%M:%S}"
    queue = f"{status.ready} ready, {status.delayed} delayed, {status.running} running"
    letters = count_noun(status.dead_letters, "dead letter")
    return f"{at}  {queue}, {live_view.completed} completed, {live_view.failed} failed, {letters}"
