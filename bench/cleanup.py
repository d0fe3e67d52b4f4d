"""Whether the history stays small while runs end at a steady rate and the cleanup deletes old records.

The database itself writes the ended jobs, so that no fleet is needed; the cleanup is the real duty of a
server, and a dispatcher visits the gate beside it and admits a trickle of jobs. Sizes are compared with those
at the moment when records have been deleted for as long as they are kept; at the end those that are kept are
verified.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import text

from bench import scale
from bench.databases import vacuum_and_checkpoint
from bench.figures import Sheet, percentile, row
from bench.history import TRAINS, Job, Size, long_app, work
from bench.options import Options
from trax.inspect.verify import verify
from trax.server.loops import clean_metadata_now
from trax.store import Store
from trax.store.gate_memory import GateMemory
from trax.testing.postgres import postgres_server
from trax.worker.dispatcher import dispatch_now

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from trax import Trax
    from trax.records.verification import Verification
    from trax.store import Connection

RATE: Final = 5_000
RECORDS: Final = 10_000_000
RETENTION_SECONDS: Final = 30
INTERVAL_SECONDS: Final = 10
WARM_VISITS: Final = 50
MAX_ACTIVE_JOBS: Final = 1_000
"""More than the history has under way, so that the gate has capacity."""
WRITES_A_SECOND: Final = 5
VISIT_SECONDS: Final = 0.02
QUEUE_SECONDS: Final = 0.05
"""Between two jobs that are queued, so that every second or third visit admits one."""
SERVER: Final = {"max_wal_size": "4GB", "shared_buffers": "512MB", "autovacuum_naptime": "10s"}
MAX_GROWTH: Final = 1.5
MAX_SLOWER: Final = 3.0
"""How much longer 99 of 100 visits may take than with nothing beside them."""
SHOWN_FINDINGS: Final = 5
WIDTHS: Final = (12, 12, 12, 12, 12, 12)
CLEANED: Final = "ended"
"""The names of the trains whose records are deleted begin with this; the other history stays."""
ENDED: Final = f"""
    WITH entries AS (
      INSERT INTO trax.work_queue (external_id, train, input, status, origin, ready, group_id, metadata_id,
        created_at, dispatched_at)
      SELECT gen_random_uuid()::text, '{CLEANED}-' || (10 + n % {TRAINS}), '{{"number": 1}}'::json,
        'dispatched', 'queue', true, groups.ids[1 + n % cardinality(groups.ids)],
        nextval(pg_get_serial_sequence('trax.metadata', 'id')), now(), now()
      FROM generate_series(1, :jobs) n, (
        SELECT array_agg(id ORDER BY id) AS ids FROM trax.manifest_group WHERE max_active_jobs IS NULL
      ) AS groups
      RETURNING *
    )
    INSERT INTO trax.metadata (id, entry_id, external_id, train, state, group_id, input, output, created_at,
      started_at, ended_at, submitter, worker_id, host)
    SELECT metadata_id, id, external_id, train, 'completed', group_id, input, input, now(), now(),
      clock_timestamp(), 'local', 1, 'box'
    FROM entries
"""  # noqa: S608 - nobody else has a word in it
ACCEPT: Final = "UPDATE trax.worker SET trains = :trains"
COMPLETE: Final = """
    UPDATE trax.metadata SET state = 'completed', started_at = now(), ended_at = clock_timestamp(),
      worker_id = 1, host = 'box', output = input
    WHERE id = ANY(:ids)
"""
SIZES: Final = """
    SELECT relname::text, pg_relation_size(relid), pg_indexes_size(relid) FROM pg_stat_user_tables
    WHERE schemaname = 'trax' AND relname IN ('metadata', 'work_queue')
"""
OLDEST: Final = f"""
    SELECT max(extract(epoch FROM now() - (
      SELECT min(ended_at) FROM trax.metadata WHERE train = '{CLEANED}-' || (10 + n)
    )))::float FROM generate_series(0, {TRAINS - 1}) n
"""  # noqa: S608 - nobody else has a word in it
"""Of all trains."""


@dataclass
class Watched:
    """Counts of what runs at the same time."""

    inserted: int = 0
    deleted: int = 0
    batches: list[float] = field(default_factory=list[float])
    visits: list[float] = field(default_factory=list[float])
    admitted: int = 0


@dataclass(frozen=True)
class Sample:
    """The state of the database at one moment."""

    seconds: float
    inserted: int
    deleted: int
    sizes: dict[str, int]
    oldest_seconds: float


async def _insert(store: Store, watched: Watched, rate: int) -> None:
    """Write ended jobs at this rate, however long each statement takes."""
    began, each = time.monotonic(), rate // WRITES_A_SECOND
    for number in range(1, 10**9):
        await store.call(lambda connection: connection.execute(text(ENDED), {"jobs": each}))
        watched.inserted += each
        await asyncio.sleep(max(0.0, began + number / WRITES_A_SECOND - time.monotonic()))


async def _clean_up(app: Trax, store: Store, watched: Watched) -> None:
    """The loop of a server: batch after batch until one is not full, then a pause."""
    resume_at: Mapping[str, datetime] = {}
    while True:
        began = time.monotonic()
        cleaned = await store.call(clean_metadata_now, store, app.context, resume_at)
        resume_at = cleaned.resume_at
        if cleaned.total:
            watched.batches.append(time.monotonic() - began)
        watched.deleted += cleaned.total
        await asyncio.sleep(0 if cleaned.run_again else INTERVAL_SECONDS)


async def _queue(app: Trax) -> None:
    while True:
        await app.queue(f"{CLEANED}-10", Job(number=1, customer="ada", token="hush"))  # noqa: S106 - no secret
        await asyncio.sleep(QUEUE_SECONDS)


async def _visit(app: Trax, store: Store, watched: Watched) -> None:
    """Admit what is queued; its runs end at once, and are part of no figure."""
    memory = GateMemory()
    while True:
        began = time.monotonic()
        dispatched = await store.call(dispatch_now, store, app.context, None, None, memory)
        watched.visits.append(time.monotonic() - began)
        watched.admitted += len(dispatched.metadata_ids)
        if ids := list(dispatched.metadata_ids):
            await store.call(_execute, COMPLETE, ids=ids)
        await asyncio.sleep(VISIT_SECONDS)


def _execute(connection: Connection, statement: str, **parameters: Any) -> None:
    connection.execute(text(statement), parameters)


def _read(connection: Connection, watched: Watched, began: float) -> Sample:
    sizes: dict[str, int] = {}
    for name, table, indexes in connection.execute(text(SIZES)):
        sizes |= {name: table, f"{name}, indexes": indexes}
    oldest = connection.execute(text(OLDEST)).scalar() or 0.0
    return Sample(time.monotonic() - began, watched.inserted, watched.deleted, sizes, oldest)


async def watch(
    url: str, *, seconds: float, rate: int, every: float
) -> tuple[list[Sample], Watched, list[float]]:
    """Run everything at the same time; before that, the gate visits alone."""
    names = [f"{CLEANED}-{10 + number}" for number in range(TRAINS)]
    app = long_app(
        url,
        max_active_jobs=MAX_ACTIVE_JOBS,
        metadata_cleanup_enabled=True,
        metadata_cleanup_trains=names,
        metadata_cleanup_retention=timedelta(seconds=RETENTION_SECONDS),
    )
    for name in names:
        app.train(name, work)
    store, watched, alone = (await app.context.store.open()).engine_lane, Watched(), Watched()
    try:
        await store.call(_execute, ACCEPT, trains=json.dumps(names))
        await _for_a_while(_visit(app, store, alone), _queue(app), seconds=min(10.0, seconds / 10))
        began, samples = time.monotonic(), list[Sample]()
        duties = (
            _insert(store, watched, rate),
            _clean_up(app, store, watched),
            _visit(app, store, watched),
            _queue(app),
        )
        tasks = [asyncio.create_task(duty) for duty in duties]
        while not samples or samples[-1].seconds < seconds:
            done, _ = await asyncio.wait(tasks, timeout=every)
            for task in done:
                task.result()
            samples.append(await store.ask(_read, watched, began))
        await _cancel(tasks)
    finally:
        app.close()
    return samples, watched, alone.visits[WARM_VISITS:] or alone.visits


async def _for_a_while(*duties: Any, seconds: float) -> None:
    tasks = [asyncio.create_task(duty) for duty in duties]
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()
    await _cancel(tasks)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def growth(samples: list[Sample]) -> dict[str, float]:
    """How much larger each table and its indexes became than when deletes had first caught up."""
    steady = next((each for each in samples if each.seconds >= 2 * RETENTION_SECONDS), samples[-1])
    later = [each for each in samples if each.seconds >= steady.seconds]
    return {name: max(each.sizes[name] for each in later) / size for name, size in steady.sizes.items()}


def main(options: Options) -> None:
    minutes = options.minutes or options.sized(30, 1)
    records = options.sized(RECORDS, 20_000)
    rate = options.sized(RATE, 500)
    print(
        f"cleanup: {rate:,} jobs a second end for {minutes:g} min beside {records:,} records; each is "
        f"deleted after {RETENTION_SECONDS} s",
        flush=True,
    )
    size = Size(runs=records, manifests=1_000, queued=0, letters=1, lines=1, groups=100)
    with postgres_server(durable=True, settings=SERVER) as server:
        scale.build(server.url, size)
        vacuum_and_checkpoint(server.url)
        samples, watched, alone = asyncio.run(
            watch(server.url, seconds=60 * minutes, rate=rate, every=options.sized(20, 5))
        )
        _print_sizes(samples)
        kept = _verify_kept(server.url)
    _report(samples, watched, alone, kept, Sheet("cleanup", options))


def _verify_kept(url: str) -> Verification:
    """Verify the records that the cleanup has kept."""
    store = Store(url)
    try:
        return verify(store, since=timedelta(seconds=RETENTION_SECONDS))
    finally:
        store.close()


def _print_sizes(samples: list[Sample]) -> None:
    row("after", "inserted", "deleted", "oldest", "metadata", "its indexes", "work_queue", widths=WIDTHS)
    for each in samples:
        sizes = [
            f"{each.sizes[name] / 1e6:,.0f} MB" for name in ("metadata", "metadata, indexes", "work_queue")
        ]
        cells = (f"{each.inserted:,}", f"{each.deleted:,}", f"{each.oldest_seconds:.0f} s", *sizes)
        row(f"{each.seconds:.0f} s", *cells, widths=WIDTHS)


def _report(
    samples: list[Sample], watched: Watched, alone: list[float], kept: Verification, sheet: Sheet
) -> None:
    seconds, last = samples[-1].seconds, samples[-1]
    print(f"  inserted {last.inserted / seconds:,.0f} a second, deleted {last.deleted / seconds:,.0f}")
    batches = watched.batches or [0.0]
    print(
        f"  a batch takes {1e3 * median(batches):.0f} ms, 99 of 100 {1e3 * percentile(batches, 0.99):.0f} ms"
    )
    print(f"  {watched.admitted:,} jobs were admitted in {len(watched.visits):,} visits to the gate")
    visits: dict[str, dict[str, float]] = {}
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        visits[name] = {"alone": percentile(alone, share), "beside": percentile(watched.visits, share)}
        beside, before = (f"{1e3 * visits[name][when]:.1f} ms" for when in ("beside", "alone"))
        print(f"  a visit to the gate, {name}: {beside}, {before} with nothing beside it")
    grown, slower = growth(samples), visits["p99"]["beside"] / visits["p99"]["alone"]
    print(f"  {kept.runs:,} runs were kept and verified")
    for each in kept.findings[:SHOWN_FINDINGS]:
        print(f"  verify: {each.text}")
    sheet.goal_at_most("oldest record", [last.oldest_seconds], 2 * RETENTION_SECONDS, ".0f", " s")
    sheet.goal_at_most("p99 of a visit beside the cleanup, over p99 alone", [slower], MAX_SLOWER, ".1f", " x")
    for name, share in grown.items():
        sheet.goal_at_most(f"{name}, over its steady size", [share], MAX_GROWTH, ".2f", " x")
    sheet.goal_at_most("findings of verify in what the cleanup kept", [len(kept.findings)], 0)
    sheet.figures = {
        "seconds": seconds,
        "inserted a second": last.inserted / seconds,
        "deleted a second": last.deleted / seconds,
        "admitted": watched.admitted,
        "visits": visits,
        "sizes": last.sizes,
        "growth": grown,
        "findings": len(kept.findings),
    }
    sheet.save()


if __name__ == "__main__":
    main(Options())
