"""The pages and indexes that the statements of every duty read, at any size of the database; counted.

Nothing here is timed. Each operation goes through the app, as a user or a server would do it, and
`auto_explain` logs the plans of all its statements. No statement may read more pages than its bound, however
large the tables are, nor scan a whole table.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import text

from bench import scale
from bench.explain import Explained, PlanLog, explained_statements
from bench.figures import row
from bench.history import TRAINS, WEEK_SECONDS, Job, Size, long_app
from bench.options import Options
from trax import Trax, junction
from trax.inspect.verify import CHUNK
from trax.store import history, status, workers
from trax.store.manifests.manifest_due import MAX_DUE
from trax.store.runs import claim
from trax.store.runs.claim import ClaimRequest
from trax.testing import Harness
from trax.testing.postgres import postgres_server
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trax.store import Connection

GREAT: Final = ("metadata", "work_queue", "manifest", "dead_letter", "log")
"""The tables that grow without bound; the others have a row for each worker, group or setting."""
BUSY: Final = ("metadata", "work_queue", "manifest")
"""The tables that a server must never scan; it reads all dead letters once an hour, to delete old ones."""
JOB: Final = Job(number=1, customer="ada", token="hush")  # noqa: S106 - made up
TRAIN: Final = "train-10"
FAILING: Final = "failing"
HOPELESS: Final = "hopeless"
BATCH: Final = 1_000
FEW: Final = 20
SLOTS: Final = 100
MOST_PRIORITY: Final = 31
ENOUGH: Final = 2_000
CLEANUP_BATCH: Final = 50
CLEANUP_BATCHES: Final = 40
PLANS_KEPT: Final = 8
"""After this many calls PostgreSQL keeps the plan of a statement."""
WIDTHS: Final = (12, 12, 10, 8)
SETTINGS: Final[dict[str, Any]] = {
    "max_active_jobs": 100_000,
    "prune_orphaned_manifests": False,
    "metadata_cleanup_enabled": True,
    "metadata_cleanup_trains": [TRAIN],
    "metadata_cleanup_batch_size": CLEANUP_BATCH,
}


@junction
async def fail(job: Job) -> Job:
    raise ValueError(job.number)


@dataclass
class Stage:
    """An app on the database, run step by step."""

    app: Trax
    harness: Harness
    log: PlanLog
    found: dict[str, list[Explained]] = field(default_factory=dict[str, list[Explained]])

    async def run(self, statement: str) -> None:
        """Change the database for the operations that follow."""
        store = await self.app.context.store.open()
        await store.call(lambda connection: connection.execute(text(statement)))
        self.log.take()

    async def ask(self, function: Callable[[Connection], Any]) -> Any:
        return await (await self.app.context.store.open()).call(function)


@dataclass(frozen=True)
class Operation:
    """A statement may read at most `most` pages, and large tables only by these indexes.

    Where one row wakes any number of others, a statement may also read `a_row` pages for each row that it
    writes or locks.
    """

    run: Callable[[Stage], Awaitable[object]]
    most: int
    ways: frozenset[str] = frozenset()
    a_row: int = 0


async def _queue_one(stage: Stage) -> None:
    for _ in range(PLANS_KEPT):
        await stage.app.queue(TRAIN, JOB)
    stage.log.take()
    await stage.app.queue(TRAIN, JOB)


async def _work(stage: Stage) -> None:
    """A worker in a separate process: it claims pending runs and writes their results."""
    store = await stage.app.context.store.open()
    worker = await Worker.start(stage.app.context, store, slots=SLOTS)
    await worker.run_all()
    await worker.unregister()


async def _work_on_failures(stage: Stage) -> None:
    """Runs that fail: some are retried, the others become dead letters."""
    for train in (FAILING, HOPELESS):
        await stage.app.queue_many(train, [JOB] * FEW, priority=MOST_PRIORITY)
    await stage.harness.cycle("job_dispatcher")
    stage.log.take()
    await _work(stage)


async def _rescue(stage: Stage) -> None:
    """A worker has claimed runs and sends no more heartbeats."""
    await stage.harness.cycle("job_dispatcher")
    silent_since = stage.harness.now - timedelta(hours=1)
    worker_id = await stage.ask(lambda connection: workers.register(connection, LOST, now=silent_since))
    request = ClaimRequest(worker_id, "gone", SLOTS, stage.app.context.trains.names_and_aliases)
    claimed = await stage.ask(lambda connection: claim.claim(connection, request, now=stage.harness.now))
    assert claimed, "there is nothing to rescue"
    stage.log.take()
    managed = await stage.harness.cycle("manifest_manager")
    assert len(managed.reaped) == len(claimed), f"{len(claimed)} runs were lost, rescued {managed.reaped}"


async def _requeue(stage: Stage) -> None:
    letters = await stage.app.dead_letters.list(limit=FEW, status="awaiting_intervention")
    stage.log.take()
    await stage.app.dead_letters.requeue([letter.id for letter in letters])


async def _beat(stage: Stage) -> None:
    now = stage.harness.now
    await stage.ask(lambda connection: workers.record_heartbeats(connection, [1, 2, 3], now=now))


async def _status(stage: Stage) -> None:
    lost_after = timedelta(seconds=20)
    await stage.ask(lambda c: status.load_status(c, now=stage.harness.now, lost_after=lost_after))


async def _verify(stage: Stage) -> None:
    """The newest chunks that `trax verify` reads."""
    end = await stage.ask(lambda connection: history.load_end(connection, stage.harness.now))
    for load, last in ((history.load_runs, end.run_id), (history.load_entries, end.entry_id)):
        await stage.ask(partial(load, after=last - CHUNK, last=last, limit=CHUNK))


async def _count(stage: Stage) -> None:
    """The counts above the lists."""
    app = stage.app
    await app.executions.count(quick=True)
    await app.executions.count(quick=True, state="failed")
    await app.executions.count(quick=True, train=TRAIN)
    await app.work_queue.count(quick=True)
    await app.manifests.count(quick=True)
    await app.dead_letters.count(quick=True)
    await app.groups.count(quick=True)


LOST: Final = {
    "host": "gone",
    "host_environment": "server",
    "host_instance_id": "gone",
    "pid": 1,
    "concurrency": SLOTS,
    "trains": "[]",
}


def _ways(*names: str) -> frozenset[str]:
    return frozenset(names)


ADMIT: Final = _ways(
    "work_queue_pkey",
    "work_queue_ready_idx",
    "work_queue_ready_in_group_idx",
    "work_queue_written_in_idx",
    "work_queue_delayed_idx",
    "work_queue_parked_idx",
    "work_queue_parked_at_idx",
    "metadata_pkey",
    "metadata_claim_idx",
    "metadata_running_idx",
    "metadata_direct_idx",
    "manifest_pkey",
)
MANAGE: Final = _ways(
    "manifest_pkey",
    "manifest_due_idx",
    "manifest_parent_idx",
    "metadata_pkey",
    "metadata_claim_idx",
    "metadata_running_idx",
    "metadata_outbox_idx",
    "metadata_active_of_manifest_idx",
    "work_queue_pkey",
    "work_queue_parked_idx",
    "work_queue_parked_at_idx",
    "work_queue_queued_of_manifest_idx",
    "work_queue_one_scheduled_idx",
    "dead_letter_one_awaiting_idx",
)
SERVE: Final = (
    ADMIT
    | MANAGE
    | _ways("metadata_ended_idx", "metadata_failed_idx", "work_queue_pkey", "manifest_resting_idx")
)
NAMES: Final = _ways("manifest_pkey", "manifest_external_id_key")
WATCH: Final = _ways(
    "metadata_pkey",
    "metadata_claim_idx",
    "metadata_running_idx",
    "metadata_failed_idx",
    "work_queue_pkey",
    "work_queue_ready_idx",
    "work_queue_delayed_idx",
    "work_queue_parked_idx",
    "manifest_pkey",
    "manifest_due_idx",
    "manifest_live_idx",
    "dead_letter_pkey",
    "dead_letter_fingerprint_idx",
    "dead_letter_awaiting_idx",
)
LETTERS: Final = _ways(
    "dead_letter_pkey",
    "dead_letter_awaiting_idx",
    "dead_letter_fingerprint_idx",
    "dead_letter_one_awaiting_idx",
)
REFERENCES: Final = ("log_metadata_idx", "metadata_parent_idx", "dead_letter_retry_idx")
"""To records that are deleted."""
WALKED: Final = _ways("Seq Scan")
"""Once an hour; the table has few rows unless operators leave them."""

OPERATIONS: Final[dict[str, Operation]] = {
    "queue": Operation(_queue_one, 60),
    "queue, in a group": Operation(lambda stage: stage.app.queue(TRAIN, JOB, group="group-101"), 60),
    "queue_many, 1,000": Operation(lambda stage: stage.app.queue_many(TRAIN, [JOB] * BATCH), 30 * BATCH),
    "manager": Operation(lambda stage: stage.harness.cycle("manifest_manager"), MAX_DUE + 2_000, MANAGE),
    "dispatcher, from the start": Operation(
        lambda stage: stage.harness.cycle("job_dispatcher"), 15_000, ADMIT
    ),
    "dispatcher, from its memory": Operation(
        lambda stage: stage.harness.cycle("job_dispatcher"), 15_000, ADMIT
    ),
    "worker": Operation(_work, 15_000, SERVE, a_row=30),
    "worker, runs that fail": Operation(_work_on_failures, 15_000, SERVE),
    "manager, a worker is lost": Operation(_rescue, MAX_DUE + 2_000, SERVE),
    "dead letters, requeued": Operation(_requeue, 60 * FEW, SERVE | LETTERS),
    "dead letters, cleaned up": Operation(
        lambda stage: stage.harness.cycle("dead_letter_cleanup"),
        60_000,
        LETTERS | WALKED | _ways("work_queue_dead_letter_idx", "metadata_pkey"),
    ),
    "heartbeat": Operation(_beat, 60),
    "metadata cleanup": Operation(
        lambda stage: stage.harness.cycle("metadata_cleanup"),
        18 * CLEANUP_BATCH,
        _ways("metadata_pkey", "metadata_ended_idx", "work_queue_pkey", *REFERENCES),
    ),
    "executions": Operation(
        lambda stage: stage.app.executions.list(limit=50), 800, _ways("metadata_pkey", *NAMES)
    ),
    "executions, failed": Operation(
        lambda stage: stage.app.executions.list(state="failed", limit=50),
        800,
        _ways("metadata_failed_idx", "metadata_pkey", *NAMES),
    ),
    "executions, of a manifest": Operation(
        lambda stage: stage.app.executions.list(manifest="sync-100017", limit=50),
        800,
        _ways("metadata_manifest_idx", "metadata_pkey", *NAMES),
    ),
    "entries": Operation(
        lambda stage: stage.app.work_queue.list(limit=50), 800, _ways("work_queue_pkey", *NAMES)
    ),
    "manifests": Operation(
        lambda stage: stage.app.manifests.list(limit=50), 1_000, _ways("manifest_live_idx", *NAMES)
    ),
    "groups": Operation(
        lambda stage: stage.app.groups.list(limit=50),
        1_000,
        _ways("manifest_group_idx", "manifest_live_idx", "work_queue_ready_in_group_idx"),
    ),
    "dead letters": Operation(
        lambda stage: stage.app.dead_letters.list(limit=50), 800, _ways("dead_letter_pkey", *NAMES)
    ),
    "dead letters, by failure": Operation(
        lambda stage: stage.app.dead_letters.groups(limit=50), 20_000, LETTERS | NAMES
    ),
    "log lines": Operation(lambda stage: stage.app.logs.list(limit=50), 800, _ways("log_pkey")),
    "counts": Operation(_count, 80_000, SERVE | WATCH | LETTERS | _ways("manifest_group_idx")),
    "home": Operation(lambda stage: stage.app.stats.home(), 60_000, SERVE | WATCH),
    "change marks": Operation(lambda stage: stage.ask(status.read_change_marks), 3_000, WATCH),
    "status": Operation(_status, 60_000, WATCH),
    "verify": Operation(
        _verify,
        15 * CHUNK,
        _ways("metadata_pkey", "work_queue_pkey", "dead_letter_pkey", "log_pkey", "manifest_pkey"),
    ),
}
SERVER: Final = "a server that drains"


async def measure(url: str, size: Size) -> dict[str, list[Explained]]:
    """The plans of each operation, one operation after the other."""
    with explained_statements() as log:
        async with _stage(url, size, log) as stage:
            await stage.run("UPDATE trax.manifest_group SET max_active_jobs = NULL")
            for name, operation in OPERATIONS.items():
                log.take()
                await operation.run(stage)
                stage.found[name] = log.take()
            await stage.run("UPDATE trax.manifest SET enabled = false WHERE next_due_at IS NULL")
            found = stage.found
        scale.vacuum(url)
        found[SERVER] = await _drain(url, log)
    return found


@asynccontextmanager
async def _stage(url: str, size: Size, log: PlanLog) -> AsyncGenerator[Stage]:
    app = long_app(url, **SETTINGS, metadata_cleanup_retention=_retention(size))
    app.train(FAILING, fail, max_retries=5)
    app.train(HOPELESS, fail, max_retries=0)
    async with Harness(app, now=datetime.now(UTC)) as harness:
        yield Stage(app, harness, log)


def _retention(size: Size) -> timedelta:
    """Long enough that the cleanup deletes many batches, but not all history."""
    share = min(1.0, CLEANUP_BATCHES * CLEANUP_BATCH * TRAINS / size.runs)
    return max(timedelta(hours=1), timedelta(seconds=WEEK_SECONDS * (1 - share)))


async def measure_full_groups(url: str, size: Size) -> int:
    """The number of pages a dispatcher reads to find the first entries of the groups that are not full."""
    with explained_statements() as log:
        async with _stage(url, size, log) as stage:
            await stage.run("UPDATE trax.manifest_group SET max_active_jobs = 0 WHERE id % 4 = 0")
            await stage.run("UPDATE trax.work_queue SET group_priority = 31 WHERE group_id % 4 = 0 AND ready")
            await stage.harness.cycle("job_dispatcher")
            return max(each.buffers for each in log.take())


async def _drain(url: str, log: PlanLog) -> list[Explained]:
    """Run a real server for a moment: the gate in one statement, claims, results, heartbeats."""
    app = long_app(url, **SETTINGS)
    await app.start(concurrency=100)
    log.take()
    try:
        while app.context.counters.admitted < ENOUGH:  # noqa: ASYNC110 - a counter tells nobody
            await asyncio.sleep(0.01)
    finally:
        await app.stop()
    return log.take()


DRAIN: Final = Operation(_work, 15_000, SERVE, a_row=30)
"""Only its bounds are used: the largest batch has a few hundred runs, which write to a dozen indexes."""
WATCHDOG: Final = "manifest_resting_idx"
WATCHDOG_MOST: Final = 500_000
"""Every 5 min it reads the manifests with a queued entry or an active run."""


def faults(name: str, found: list[Explained]) -> list[str]:
    """The statements that exceed the bounds of an operation."""
    operation = DRAIN if name == SERVER else OPERATIONS[name]
    tables = BUSY if name == SERVER else GREAT
    broken: list[str] = []
    for each in found:
        statement = " ".join(each.statement.split())[:100]
        is_watchdog = WATCHDOG in each.ways_into("manifest")
        most = WATCHDOG_MOST if is_watchdog else operation.most + operation.a_row * each.changed_rows
        if each.buffers > most:
            broken.append(f"{name}: {each.buffers} pages, at most {most}: {statement}")
        unusual = {way for table in tables for way in each.ways_into(table)} - operation.ways
        broken += [f"{name}: by {way}: {statement}" for way in sorted(unusual)]
    return broken


def main(options: Options) -> None:
    size = scale.shrunk(options.sized(1_000, 10) / 1_000)
    print(
        f"plans: pages that statements read with {size.runs:,} records, {size.manifests:,} manifests, "
        f"{size.queued:,} entries and {size.groups:,} groups"
    )
    logging.getLogger("trax").setLevel(logging.ERROR)  # the jobs fail as they should
    with postgres_server(settings=scale.SERVER) as server:
        scale.build(server.url, size)
        found = asyncio.run(measure(server.url, size))
    row("", "statements", "pages", "largest", "bound", widths=WIDTHS)
    for name, explained in found.items():
        buffers = [each.buffers for each in explained] or [0]
        most = (DRAIN if name == SERVER else OPERATIONS[name]).most
        row(name, f"{len(explained)}", f"{sum(buffers):,}", f"{max(buffers):,}", f"{most:,}", widths=WIDTHS)
    broken = [fault for name, explained in found.items() for fault in faults(name, explained)]
    print("\n".join(f"  BROKEN  {fault}" for fault in broken) or "  every statement is within its bound")


if __name__ == "__main__":
    main(Options())
