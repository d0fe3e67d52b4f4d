"""What a job costs the database, counted: statements, transactions, row versions and bytes of WAL.

Nothing here is timed, so a busy machine gives the same figures as an idle one. The loops of a server are run
step by step, one batch of jobs after the other. What one more batch adds to the counters of PostgreSQL is
its cost: the start of the server, and what its first batches do once, is left out.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from unittest.mock import patch

import psycopg
from psycopg.conninfo import conninfo_to_dict

from bench.databases import database
from bench.explain import explained_statements
from bench.options import Options
from trax import Retry, Trax, current, every, junction
from trax.remote.receiver import OpenSubmitters
from trax.server.duties import build_duties, clean_metadata_now
from trax.server.roles import ProcessDuties, ProcessRole
from trax.server.start import start
from trax.store import Store, postgresql
from trax.testing.postgres import postgres_server
from trax.worker import pool
from trax.worker.loop import DutyLoops, Loop
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

logger = logging.getLogger(__name__)

PAGE: Final = Path(__file__).parent.parent / "docs" / "reference" / "cost.md"
JOBS: Final = 100
WARM: Final = 2
"""The number of batches before the one that is counted: the first ones prepare what later ones use."""
SERVER: Final = {"autovacuum": "off", "checkpoint_timeout": "1h", "max_wal_size": "4GB"}
"""No background work of the server, and no full page images, which depend on checkpoints."""
LINES: Final = 3
GONE_SECONDS: Final = 600
MINUTE: Final = 60.0
APART: Final = "a dispatcher without a worker"
COUNTED: Final = """
    SELECT sum(n_tup_ins), sum(n_tup_upd), sum(n_tup_hot_upd), sum(n_tup_del) FROM pg_stat_user_tables
    WHERE schemaname = 'trax' AND relname <> 'worker'
"""
"""The row of a worker is renewed every few seconds, whatever it does."""
TRANSACTIONS: Final = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s"
WRITTEN: Final = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
SESSIONS: Final = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"


class Cost(NamedTuple):
    """The counters of a database."""

    statements: float
    transactions: float
    wal_bytes: float
    inserted: float
    updated: float
    hot: float
    """How many of those updates needed no new entry in an index."""
    deleted: float

    def __sub__(self, other: Cost) -> Cost:
        return Cost(*(ours - theirs for ours, theirs in zip(self, other, strict=True)))


@dataclass
class DrivenServer:
    """A server in all roles whose loops are run step by step, with a clock that is moved by hand."""

    app: Trax
    store: Store
    worker: Worker
    loops: dict[str, Loop]
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    async def turn(self, name: str) -> None:
        """One turn of a loop, and more if it requests them, as the loop would do."""
        loop = self.loops[name]
        while await loop._run_turn() == 0:  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            loop.is_requested = True

    async def run_admitted(self) -> None:
        """One visit to the gate, which starts what it admits, and one transaction for all results."""
        await self.turn("job_dispatcher")
        while self.worker.load.running or self.worker.load.prefetched:  # noqa: ASYNC110
            await asyncio.sleep(0)  # the jobs wait for nothing
        await self.turn("finisher")


@dataclass(frozen=True)
class Scenario:
    """Does something with a batch of jobs. `run` is counted, `prepare` is not."""

    run: Callable[[DrivenServer], Awaitable[object]]
    prepare: Callable[[DrivenServer], Awaitable[object]] | None = None
    needs_manifests: bool = False


async def _queue_many(server: DrivenServer) -> None:
    await server.app.queue_many("plain", ["x"] * JOBS)


async def _queue_singly(server: DrivenServer) -> None:
    for _ in range(JOBS):
        await server.app.queue("plain", "x")


async def _run(server: DrivenServer, train: str) -> None:
    await server.app.queue_many(train, ["x"] * JOBS)
    await server.run_admitted()


async def _run_elsewhere(server: DrivenServer) -> None:
    """The dispatcher has no slots; a worker of another process claims."""
    await server.app.queue_many("plain", ["x"] * JOBS)
    await server.turn(APART)
    await server.worker.run_all()


async def _run_manifests(server: DrivenServer) -> None:
    server.now += timedelta(seconds=2)
    await server.turn("manifest_manager")
    await server.run_admitted()


async def _run_again(server: DrivenServer) -> None:
    """Each job fails once and succeeds when it is retried."""
    await _run(server, "fails_once")
    server.now += timedelta(seconds=2)
    await server.run_admitted()


async def _idle(server: DrivenServer) -> None:
    """What the polls of one minute do when nothing wakes the loops."""
    context = server.app.context
    for loop in server.loops.values():
        if loop is server.loops[APART]:
            continue
        seconds = loop._poll_seconds()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        for _ in range(round(MINUTE / seconds)):
            loop.is_requested = False
            await server.turn(loop.name)
    for _ in range(round(MINUTE / context.settings.heartbeat_interval.total_seconds())):
        await server.store.call(context.heartbeat.record_heartbeats, server.now)


async def _clean_up(server: DrivenServer) -> None:
    context = server.app.context
    server.now += timedelta(minutes=1)
    await server.store.call(clean_metadata_now, server.store, context, {})


IDLE: Final = "a minute of an idle server in all roles"
SCENARIOS: Final[dict[str, Scenario]] = {
    "queue: one job a call": Scenario(_queue_singly),
    "queue_many: 100 jobs a call": Scenario(_queue_many),
    "a queued job, from queue_many to its end": Scenario(lambda server: _run(server, "plain")),
    "the same, with the worker in another process": Scenario(_run_elsewhere),
    "the same, with progress and 3 log lines": Scenario(lambda server: _run(server, "tells")),
    "a job that fails and succeeds when tried again": Scenario(_run_again),
    "a job that becomes a dead letter": Scenario(lambda server: _run(server, "hopeless")),
    "a scheduled run, from its manifest to its end": Scenario(_run_manifests, needs_manifests=True),
    "deleting the record and the entry of a job": Scenario(
        _clean_up, prepare=lambda server: _run(server, "plain")
    ),
    IDLE: Scenario(_idle),
}


def build_app(url: str, *, manifests: int = 0) -> Trax:
    """The trains of the scenarios; none of them does anything of its own."""
    app = Trax(
        url,
        max_active_jobs=10 * JOBS,
        notifications=False,
        metadata_cleanup_enabled=True,
        metadata_cleanup_trains=["plain"],
        metadata_cleanup_retention=timedelta(seconds=30),
        metadata_cleanup_batch_size=JOBS,
    )

    train = app.train("plain", plain)
    app.train("tells", tells)
    app.train("fails_once", fails_once, retry=Retry(max_attempts=2, delay=timedelta(seconds=1)))
    app.train("hopeless", hopeless, max_attempts=0)
    if manifests:
        inputs = {f"{number:03}": "x" for number in range(manifests)}
        app.schedule_many(train, "sync", inputs, every(seconds=1))
    return app


@junction
async def plain(word: str) -> str:
    return word


@junction
async def tells(word: str) -> str:
    run = current()
    assert run is not None
    for number in range(LINES):
        logger.info("line %s", number)
    await run.progress(0.5, "half of it")
    return word


@junction
async def fails_once(word: str) -> str:
    run = current()
    if run is None or run.attempt == 1:
        raise RuntimeError(word)
    return word


@junction
async def hopeless(word: str) -> str:
    raise ValueError(word)


@asynccontextmanager
async def driven_server(url: str, *, manifests: int = 0) -> AsyncGenerator[DrivenServer]:
    """A server in all roles that does nothing on its own."""
    app = build_app(url, manifests=manifests)
    context = app.context
    context.run_log.is_manual = context.heartbeat.is_manual = True
    now = datetime.now(UTC)
    context.store.clock = lambda: server.now if server else now
    server: DrivenServer | None = None
    store = (await context.store.open()).engine_lane
    worker = await Worker.start(context, store, slots=2 * JOBS, dispatches=True)
    duties = ProcessDuties(context, store, ProcessRole.ALL, worker, OpenSubmitters(), None)
    apart = DutyLoops(context.events)
    apart.add(build_duties(context, store, apart.turns_of))
    loops = {loop.name: loop for loop in duties.loops} | {APART: apart.turns_of("job_dispatcher")}
    server = DrivenServer(app, store, worker, loops, now)
    await start(store, context.declarations.timetable(), context.settings, app=context.name)
    try:
        yield server
    finally:
        await worker.unregister()
        app.close()


def measure_batch(server: str, migrated: Any, scenario: Scenario) -> Cost:
    """What one more batch of this scenario adds to the counters."""
    costs: list[Cost] = []
    for batches in (WARM, WARM + 1):
        with database(server, template=migrated) as url:
            costs.append(asyncio.run(_count_batches(server, url, scenario, batches)))
    return costs[1] - costs[0]


async def _count_batches(server: str, url: str, scenario: Scenario, batches: int) -> Cost:
    with explained_statements() as log:
        manifests = JOBS if scenario.needs_manifests else 0
        async with driven_server(url, manifests=manifests) as driven:
            if scenario.prepare is not None:
                for _ in range(WARM + 1):  # as many for both counts
                    await scenario.prepare(driven)
            began = await asyncio.to_thread(_read_wal_position, server)
            log.take()
            for _ in range(batches):
                await scenario.run(driven)
            statements = len(log.take())
            written = await asyncio.to_thread(_read_wal_position, server) - began
        return await asyncio.to_thread(_read_counters, server, url, statements, written)


def _read_wal_position(server: str) -> int:
    with psycopg.connect(server, autocommit=True) as connection:
        return int(_first(connection, WRITTEN)[0])


def _read_counters(server: str, url: str, statements: int, wal_bytes: int) -> Cost:
    """A session writes its counters when it ends, at the latest, so wait until all have ended."""
    name = conninfo_to_dict(url)["dbname"]
    give_up = time.monotonic() + GONE_SECONDS
    with psycopg.connect(server, autocommit=True) as connection:
        while _first(connection, SESSIONS, name)[0]:
            assert time.monotonic() < give_up, "the sessions of the app have not ended"
            time.sleep(0.01)
        (transactions,) = _first(connection, TRANSACTIONS, name)
    with psycopg.connect(url, autocommit=True) as connection:
        rows = _first(connection, COUNTED)
    return Cost(statements, transactions, wal_bytes, *map(int, rows))


def _first(connection: psycopg.Connection[Any], query: str, *parameters: object) -> tuple[Any, ...]:
    row = connection.execute(query.encode(), parameters).fetchone()
    assert row is not None, query
    return row


def measure(server: str) -> dict[str, Cost]:
    """On a busy machine idle connections are pinged, and runs that do not begin go back: not here."""
    patient = patch.multiple(pool, MAX_WAIT_SECONDS=A_DAY, BACKLOG_SECONDS=A_DAY)
    with patient, patch.object(postgresql, "IDLE_SECONDS", math.inf), database(server) as url:
        store = Store(url)
        store.open()
        store.close()
        migrated = conninfo_to_dict(url)["dbname"]
        return {name: measure_batch(server, migrated, scenario) for name, scenario in SCENARIOS.items()}


A_DAY: Final = 86_400.0
HEAD: Final = """\
| | statements | transactions | rows inserted | updated | of these HOT | deleted | bytes of WAL |
|---|--:|--:|--:|--:|--:|--:|--:|
"""
TABLE: Final = re.compile(r"(<!-- counted by `python -m bench cost` -->\n).*?(<!-- end -->)", re.DOTALL)
LINE: Final = re.compile(r"^\| (.+?) \| ([\d,.]+(?: \| [\d,.]+){6}) \|$", re.MULTILINE)


def build_table(costs: dict[str, Cost]) -> str:
    """Statements and transactions are those of a whole batch, the rest is for one job of it."""
    return HEAD + "".join(f"| {name} | {' | '.join(_cells(name, cost))} |\n" for name, cost in costs.items())


def _cells(name: str, cost: Cost) -> list[str]:
    jobs = 1 if name == IDLE else JOBS
    rows = (f"{round(count / jobs, 2):g}" for count in (cost.inserted, cost.updated, cost.hot, cost.deleted))
    wal = f"{cost.wal_bytes / jobs:,.0f}"
    return [f"{cost.statements:g}", f"{cost.transactions:g}", *rows, wal]


def read_table(page: str) -> dict[str, list[float]]:
    """The figures of each line of the page."""
    return {
        name: [float(figure.replace(",", "")) for figure in figures.split(" | ")]
        for name, figures in LINE.findall(page)
    }


def main(options: Options) -> None:
    logging.getLogger("trax").setLevel(logging.ERROR)  # the jobs fail as they should
    print(f"cost: what batches of {JOBS} jobs cost PostgreSQL; counted, not timed")
    with postgres_server(settings=SERVER) as server:
        table = build_table(measure(server.url))
    print(table)
    if not options.quick:
        page = PAGE.read_text(encoding="utf-8")
        written, found = TABLE.subn(lambda old: f"{old[1]}\n{table}\n{old[2]}", page)
        assert found == 1, f"{PAGE.name} has no place for the table"
        PAGE.write_text(written, encoding="utf-8")
        print(f"  written to {PAGE.name}")


if __name__ == "__main__":
    main(Options())
