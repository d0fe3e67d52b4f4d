"""The demo where nothing can be drawn: a line now and then says how things stand."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from trax.cli.serving import counted
from trax.cli.showing import say
from trax.cli.view import look

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractAsyncContextManager

    from trax import Trax
    from trax.records.glance import Glance

EACH_SECONDS: Final = 2.0


class Told:
    """The face of a server that speaks to a pipe."""

    @property
    def terminal(self) -> None:
        return None

    def say(self, text: str, /) -> None:
        say(text)

    def shown(self, app: Trax, heading: str, /) -> AbstractAsyncContextManager[None]:
        self.say(heading)
        return _told(app)


@asynccontextmanager
async def _told(app: Trax) -> AsyncGenerator[None]:
    telling = asyncio.create_task(_tell(app), name="trax demo lines")
    try:
        yield
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)


async def _tell(app: Trax) -> None:
    store = await app.parts.store.opened()
    while True:
        await asyncio.sleep(EACH_SECONDS)
        say(line(await asyncio.to_thread(look, app, store)))


def line(seen: Glance) -> str:
    status = seen.status
    at = f"{status.now:%H:%M:%S}"
    waits = f"{status.ready} ready, {status.delayed} delayed, {status.running} running"
    letters = counted(status.dead_letters, "dead letter")
    return f"{at}  {waits}, {seen.completed} done, {seen.failed} failed, {letters}"
