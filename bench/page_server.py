"""A process that serves the dashboard of a database with a long history, and runs no job."""

from __future__ import annotations

import asyncio
import os

from bench.children import say, words
from bench.history import long_app
from trax.web import Access
from trax.web.serve import ListenAddress, WebListener


async def main() -> None:
    app, doorway = long_app(), WebListener(ListenAddress(port=0), Access(insecure_local=True))
    await app.context.store.open()
    async with doorway.serve(app) as address:
        say(ready=True, address=address, pid=os.getpid())
        async for _ in words():
            pass
    app.close()


if __name__ == "__main__":
    asyncio.run(main())
