"""Output of the demo without a terminal: a status line every 2 s."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from trax.cli.serving import count_noun
from trax.cli.showing import say
from trax.cli.view import read_live_view

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractAsyncContextManager

    from trax import Trax
    from trax.records.glance import LiveView

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
    store = await app.parts.store.open()
    while True:
        await asyncio.sleep(INTERVAL_SECONDS)
        say(status_line(await asyncio.to_thread(read_live_view, app, store)))


def status_line(live_view: LiveView) -> str:
    status = live_view.status
    at = f"{status.now:%H:%M:%S}"
    queue = f"{status.ready} ready, {status.delayed} delayed, {status.running} running"
    letters = count_noun(status.dead_letters, "dead letter")
    return f"{at}  {queue}, {live_view.completed} completed, {live_view.failed} failed, {letters}"
