# pyright: basic, reportMissingImports=false
# The peer is installed in an environment of its own, which the type checker does not see.
"""What PgQueuer is asked to do beside working: make its tables, take jobs in, tell how fast it took them."""

from __future__ import annotations

import sys
import time

import asyncpg
import uvloop
from pgqueuer import Queries

from bench.children import say

PAYLOAD = b'{"number":1}'
FILL = 1_000


async def main(what: str, url: str, *numbers: str) -> None:
    connection = await asyncpg.connect(url)
    queries = Queries.from_asyncpg_connection(connection)
    given = [int(number) for number in numbers]
    match what:
        case "fill":
            await queries.install()
            await _fill(queries, *given)
        case "enqueue":
            await _enqueue(queries, *given)
        case _:
            sys.exit(f"pgqueuer_client knows fill and enqueue, not {what!r}")
    await connection.close()


async def _fill(queries: Queries, jobs: int) -> None:
    for done in range(0, jobs, FILL):
        await _add(queries, min(FILL, jobs - done))


async def _enqueue(queries: Queries, calls: int, size: int, singles: int) -> None:
    """Say how many jobs a second were taken in, many a call and one a call."""
    started = time.perf_counter()
    for _ in range(calls):
        await _add(queries, size)
    between = time.perf_counter()
    for _ in range(singles):
        await queries.enqueue("noop", PAYLOAD)
    ended = time.perf_counter()
    say(bulk=calls * size / (between - started), single=singles / (ended - between))


async def _add(queries: Queries, count: int) -> None:
    await queries.enqueue(["noop"] * count, [PAYLOAD] * count, [0] * count)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
