"""`make soak MINUTES=30`: run a real fleet under load and faults; check that nothing grows or is lost.

A scheduler and two workers run on PostgreSQL. One worker is killed repeatedly, sessions of the database
are ended, and the database restarts; halfway through a long soak it is away for a minute. The other
processes must survive it all. Memory, threads, files, tasks, connections and tables are sampled, and each
time all records that are kept are verified. At the end the last third may not exceed the middle third.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psycopg

from bench.processes import PROC, megabytes
from trax import Trax
from trax.errors import TraxError
from trax.inspect.verify import verify
from trax.store import Store
from trax.testing.postgres import PostgresServer, postgres_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

TRAX: Final = Path(sys.executable).with_name("trax")
PROJECT: Final = Path(__file__).parent.parent
VICTIM: Final = "worker-2"
COMMANDS: Final[dict[str, list[str]]] = {
    "scheduler": ["scheduler"],
    "worker-1": ["worker", "--concurrency", "10"],
    VICTIM: ["worker", "--concurrency", "10"],
}
BURST: Final = 20
BURST_SECONDS: Final = 0.5
IDLE_SECONDS: Final = 120
LONG_SECONDS: Final = 15 * 60
"""A soak that takes at least this long has the default leases, and one outage."""
OUTAGE_SECONDS: Final = 60
SHORT_LEASES: Final = {"TRAX_HEARTBEAT_INTERVAL": "0.5", "TRAX_WORKER_LOST_AFTER": "4"}
FAULTS: Final = ("worker killed", "sessions ended", "database restarted")
OUTAGE: Final = "database away for a minute"
FEWEST_SAMPLES: Final = 9
TABLE_PREFIX: Final = "MB of"
SESSIONS: Final = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
END_SESSIONS: Final = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name LIKE 'trax%' AND pid <> pg_backend_pid()
"""
TABLE_SIZES: Final = """
    SELECT relname::text, pg_total_relation_size(relid) / 1e6 FROM pg_stat_user_tables
    WHERE schemaname = 'trax' AND relname IN ('metadata', 'work_queue', 'log', 'dead_letter', 'worker')
"""
OVER_LIMIT: Final = """
    SELECT g.name FROM trax.manifest_group g JOIN trax.metadata m ON m.group_id = g.id
    WHERE m.state IN ('pending', 'in_progress') GROUP BY g.id HAVING count(*) > g.max_active_jobs
"""
LEFT: Final = """
    SELECT 'run', id, train, state, worker_id, attempt, started_at::text, cancel_requested
    FROM trax.metadata WHERE state IN ('pending', 'in_progress')
    UNION ALL
    SELECT 'entry', id, train, status || ' ' || ready, NULL, attempt, scheduled_at::text, parked IS NOT NULL
    FROM trax.work_queue WHERE status = 'queued' LIMIT 20
"""
WORKERS: Final = "SELECT id, kind, concurrency, (now() - heartbeat_at)::text FROM trax.worker ORDER BY id"
BUSY: Final = """
    SELECT (SELECT count(*) FROM trax.work_queue WHERE status = 'queued')
      + (SELECT count(*) FROM trax.metadata WHERE state IN ('pending', 'in_progress'))
"""


class Tolerance(NamedTuple):
    """How much larger the last third may be than the middle one: a share, and an absolute allowance."""

    share: float
    more: float


TOLERANCES: Final = {
    "MB": Tolerance(0.05, 8.0),
    "threads": Tolerance(0, 3),
    "files": Tolerance(0.1, 5),
    "tasks": Tolerance(0.2, 20),
    "connections": Tolerance(0.1, 5),
    TABLE_PREFIX: Tolerance(0.25, 3.0),
}


@dataclass
class Verdict:
    """The result of a soak."""

    samples: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    faults: Counter[str] = field(default_factory=Counter[str])
    verifications: list[int] = field(default_factory=list[int])
    """How many runs each of them has read."""
    accepted: int = 0
    lost: list[int] = field(default_factory=list[int])
    broken: list[str] = field(default_factory=list[str])
    has_steady_tables: bool = True
    """Whether the cleanup has deleted as much as jobs write since before the middle third."""

    @property
    def grown(self) -> list[str]:
        names = sorted({name for sample in self.samples for name in sample})
        if not self.has_steady_tables:
            names = [name for name in names if not name.startswith(TABLE_PREFIX)]
        series = {name: [sample[name] for sample in self.samples if name in sample] for name in names}
        return [fault for name, figures in series.items() if (fault := judge(name, figures))]

    def add_problems(self, problems: Iterable[str]) -> None:
        """Note what is wrong, once."""
        self.broken += [each for each in dict.fromkeys(problems) if each not in self.broken]

    @property
    def is_well(self) -> bool:
        return not (self.grown or self.lost or self.broken)


def judge(name: str, figures: Sequence[float]) -> str | None:
    """Compare the last third with the middle one; the first third is for warming up."""
    if len(figures) < FEWEST_SAMPLES:
        return None
    third = len(figures) // 3
    middle, last = median(figures[third : 2 * third]), median(figures[2 * third :])
    kind = next(kind for kind in sorted(TOLERANCES, key=len, reverse=True) if kind in name)
    share, more = TOLERANCES[kind]
    most = middle * (1 + share) + more
    return f"{name} grew from {middle:,.1f} to {last:,.1f}, at most {most:,.1f}" if last > most else None


def plan_faults(seconds: float, every: float) -> Iterator[str]:
    """The faults in turn; halfway through a long soak, the outage."""
    usual = cycle(FAULTS)
    halfway = int(seconds / every / 2) if seconds >= LONG_SECONDS else None
    for number in count(1):
        yield OUTAGE if number == halfway else next(usual)


class SoakedFleet:
    """Processes of one app on one database, in one folder."""

    def __init__(self, url: str, folder: Path, stack: ExitStack, environment: dict[str, str]) -> None:
        self._url = url
        self._environment = environment
        self._folder = folder
        self._stack = stack
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        words = [TRAX, COMMANDS[name][0], "bench.soak_app:app", *COMMANDS[name][1:]]
        own = {"TRAX_DATABASE_URL": self._url, "PYTHONPATH": str(PROJECT)}
        environment = os.environ | self._environment | own
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(words, cwd=self._folder, env=environment, stdout=log, stderr=log)
        self._stack.callback(process.kill)
        self.processes[name] = process

    def kill_victim(self) -> None:
        self.processes[VICTIM].kill()
        self.processes[VICTIM].wait()
        self.start(VICTIM)

    def stop(self) -> list[str]:
        """Stop all processes; return those that failed to stop cleanly."""
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        codes = {name: process.wait(120) for name, process in self.processes.items()}
        if codes[VICTIM] == -signal.SIGTERM:  # it was still starting, and did not listen yet
            del codes[VICTIM]
        return [f"{name} ended with status {code}" for name, code in codes.items() if code]

    def sample(self) -> dict[str, float]:
        """The resources of the processes that are not killed."""
        found: dict[str, float] = {}
        tasks = {pid: int(count) for pid, count in map(str.split, self.lines("tasks"))}
        for name, process in self.processes.items():
            if name == VICTIM:
                continue
            folder = PROC / str(process.pid)
            found[f"{name}: MB"] = megabytes(process.pid)
            found[f"{name}: threads"] = sum(1 for _ in (folder / "task").iterdir())
            found[f"{name}: files"] = sum(1 for _ in (folder / "fd").iterdir())
            if str(process.pid) in tasks:
                found[f"{name}: tasks"] = tasks[str(process.pid)]
        return found

    def lines(self, file: str) -> list[str]:
        path = self._folder / file
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


@dataclass
class Soak:
    """One soak, from its start to its result."""

    server: PostgresServer
    fleet: SoakedFleet
    app: Trax
    verdict: Verdict
    accepted: set[int] = field(default_factory=set[int])

    async def produce(self) -> None:
        """Queue jobs, cancel some, and resolve dead letters, until cancelled; the database may be down."""
        number = 0
        while True:
            batch = list(range(number, number + BURST))
            with suppress(TraxError):
                await self.app.queue_many("counted", batch)
                self.accepted.update(
                    batch
                )  # a call that failed may have been accepted, too: then it is no loss
                await self.app.queue_many("told", batch[:3])
                await self.app.queue("hopeless", number)
                await self.app.queue("slow", number)
                slow = await self.app.executions.list(train="slow", state="in_progress", limit=20)
                await self.app.executions.cancel([run.id for run in slow])
                await self.app.dead_letters.acknowledge_all("this job fails on purpose")
            number += BURST
            await asyncio.sleep(BURST_SECONDS)

    async def break_things(self, seconds: float, every: float) -> None:
        faults: dict[str, Callable[[], Any]] = {
            "worker killed": self.fleet.kill_victim,
            "sessions ended": lambda: self.query(END_SESSIONS),
            "database restarted": lambda: self.server.restart("fast"),
            OUTAGE: self._take_database_away,
        }
        for name in plan_faults(seconds, every):
            await asyncio.sleep(every)
            await asyncio.to_thread(faults[name])
            self.verdict.faults[name] += 1

    def _take_database_away(self) -> None:
        self.server.stop("immediate")
        time.sleep(OUTAGE_SECONDS)
        self.server.start()

    async def watch(self, seconds: float, every: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await asyncio.sleep(every)
            with suppress(psycopg.OperationalError, TraxError):  # the database is away
                self.verdict.samples.append(await asyncio.to_thread(self._sample))
                await asyncio.to_thread(self.verify)

    def _sample(self) -> dict[str, float]:
        sample = self.fleet.sample()
        sample["connections"] = float(self.query(SESSIONS)[0][0])
        sample |= {f"{TABLE_PREFIX} {name}": float(size) for name, size in self.query(TABLE_SIZES)}
        over = [f"group {name} is over its limit" for (name,) in self.query(OVER_LIMIT)]
        self.verdict.add_problems(over)
        return sample

    async def wait_for_jobs(self) -> None:
        """Wait until every accepted job has ended, without new jobs."""
        give_up = time.monotonic() + IDLE_SECONDS
        while time.monotonic() < give_up:
            with suppress(TraxError):  # the database restarts, or the scheduler has not declared them yet
                for name in ("tick", "after"):
                    for number in range(5):
                        await self.app.manifests.disable(f"{name}-{number}")
                break
            await asyncio.sleep(0.5)
        while await asyncio.to_thread(self._count_busy):
            slow = await self.app.executions.list(train="slow", state="in_progress", limit=100)
            await self.app.executions.cancel([run.id for run in slow])
            if time.monotonic() > give_up:
                left = f"after {IDLE_SECONDS} s these jobs have not ended: {self.query(LEFT)}"
                self.verdict.broken.append(f"{left}; workers: {self.query(WORKERS)}")
                return
            await asyncio.sleep(0.2)

    def _count_busy(self) -> int:
        return int(self.query(BUSY)[0][0])

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            return connection.execute(statement.encode()).fetchall()

    def verify(self) -> None:
        """Verify all records that are kept: the cleanup deletes each after `KEPT_SECONDS`."""
        store = Store(self.server.url)
        try:
            found = verify(store)
        finally:
            store.close()
        self.verdict.verifications.append(found.runs)
        self.verdict.add_problems(finding.text for finding in found.findings)


async def soak(server: PostgresServer, folder: Path, *, seconds: float) -> Verdict:
    """Run a fleet for this long, with a fault every minute, and at least three."""
    os.environ["TRAX_DATABASE_URL"] = server.url
    from bench.soak_app import KEPT_SECONDS, app  # it reads the address

    with ExitStack() as stack:
        fleet = SoakedFleet(server.url, folder, stack, {} if seconds >= LONG_SECONDS else SHORT_LEASES)
        verdict = Verdict(has_steady_tables=seconds / 3 >= 2 * KEPT_SECONDS)
        one = Soak(server, fleet, app, verdict)
        await app.context.store.open()  # migrated before they all start
        for name in COMMANDS:
            fleet.start(name)
        duties = [one.produce(), one.break_things(seconds, min(60.0, seconds / 4))]
        tasks = [asyncio.create_task(duty) for duty in duties]
        await one.watch(seconds, min(20.0, seconds / 12))
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        one.verdict.broken += [repr(each) for each in ended if not isinstance(each, asyncio.CancelledError)]
        await one.wait_for_jobs()
        one.verify()
        one.verdict.broken += fleet.stop()
        ran = set(map(int, fleet.lines("ran")))
        one.verdict.accepted, one.verdict.lost = len(one.accepted), sorted(one.accepted - ran)
        app.close()
    return one.verdict


def report(verdict: Verdict) -> str:
    """A table of the samples: the median of each third, and the problems found."""
    names = sorted({name for sample in verdict.samples for name in sample})
    lines = [f"{'':<28}{'first third':>14}{'middle':>14}{'last':>14}"]
    for name in names:
        figures = [sample[name] for sample in verdict.samples if name in sample]
        third = max(1, len(figures) // 3)
        parts = (figures[:third], figures[third : 2 * third] or figures, figures[2 * third :] or figures)
        lines.append(f"{name:<28}" + "".join(f"{median(part):>14,.1f}" for part in parts))
    faults = ", ".join(f"{times} x {name}" for name, times in verdict.faults.items())
    lines.append(f"{verdict.accepted:,} jobs accepted, {len(verdict.lost)} lost; {faults}")
    if verdict.verifications:
        runs = f"{median(verdict.verifications):,.0f} runs"
        lines.append(f"verified {len(verdict.verifications)} times, {runs} each (median)")
    wrong = [*verdict.grown, *verdict.broken, *(["lost: " + str(verdict.lost[:10])] if verdict.lost else [])]
    if len(verdict.samples) < FEWEST_SAMPLES:
        lines.append("too short to tell whether anything grows")
    elif not verdict.has_steady_tables:
        lines.append("too short to tell whether the tables grow")
    return "\n".join([*lines, *(f"WRONG  {each}" for each in wrong)] + ([] if wrong else ["no problems"]))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    minutes: float = parser.parse_args(arguments).minutes
    if not PROC.is_dir():
        print("a soak needs /proc, which this system does not have")
        return 2
    with (
        tempfile.TemporaryDirectory(prefix="trax-soak-") as folder,
        postgres_server(durable=True) as server,
    ):
        verdict = asyncio.run(soak(server, Path(folder), seconds=60 * minutes))
    print(report(verdict))
    return 0 if verdict.is_well else 1


if __name__ == "__main__":
    sys.exit(main())
