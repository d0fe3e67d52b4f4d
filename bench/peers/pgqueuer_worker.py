# pyright: basic, reportMissingImports=false
# The peer is installed in an environment of its own, which the type checker does not see.
"""PgQueuer's side of `bench.worker`: the same words, the same answers."""

from __future__ import annotations

import asyncio
import sys
import time

import asyncpg
import uvloop
from pgqueuer import Job, PgQueuer, Queries

from bench.children import say, words

BATCH = 500
PAYLOAD = b'{"number":1}'


async def main(url: str) -> None:
    async with asyncpg.create_pool(url, min_size=2, max_size=5) as pool:
        peer, client = PgQueuer.from_asyncpg_pool(pool), Queries.from_asyncpg_pool(pool)
        _register(peer)
        say(ready=True)
        cpu = time.process_time()
        working = None
        async for word in words():
            match word:
                case "work":
                    cpu = time.process_time()
                    working = asyncio.create_task(peer.qm.run(batch_size=BATCH))
                    say(works=True)
                case "queue":
                    asked = time.monotonic()
                    await client.enqueue("tell", PAYLOAD)
                    say(asked=asked)
                case _:
                    break
        say(cpu=time.process_time() - cpu)
        peer.shutdown.set()
        if working is not None:
            await working


def _register(peer: PgQueuer) -> None:
    @peer.entrypoint("noop")
    async def noop(job: Job) -> None:
        """Do nothing."""

    @peer.entrypoint("tell")
    async def tell(job: Job) -> None:  # noqa: ARG001
        say(started=time.monotonic())


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
