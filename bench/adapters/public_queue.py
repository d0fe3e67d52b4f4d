"""An adapter for the public queue benchmark: `python -m bench.adapters.public_queue [SYSTEM]`.

One process that queues jobs at a rate, processes them, and writes its figures as JSON lines, as
https://github.com/hardbyte/postgresql-job-queue-benchmarking asks in CONTRIBUTING_ADAPTERS.md. Everything is
set by environment variables; SIGTERM ends it. `public_queue.json` is its static manifest.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Final, Self
from urllib.parse import urlsplit

import psycopg

from bench.adapters import run_in_loop

SYSTEMS: Final = {"trax": "bench.adapters.public_trax", "pgqueuer": "bench.adapters.public_pgqueuer"}
WINDOW_SECONDS: Final = 30
DEPTH_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 0.05
FAILED_SECONDS: Final = 0.25
"""The pause between two calls of a producer whose database is down."""
LAST_CALL_SECONDS: Final = 1.5
OBSERVED: Final = frozenset({"queue_depth", "producer_target_rate"})
"""The figures of the whole fleet; only its first process reports them."""
Job = dict[str, Any]
RunJob = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Contract:
    """The options that the benchmark gives this process."""

    url: str
    scenario: str = "long_horizon"
    mode: str = "fixed"
    rate: float = 800
    batch_max: int = 128
    batch_ms: int = 10
    target_depth: int = 1000
    workers: int = 32
    payload_bytes: int = 256
    work_ms: float = 1
    sample_seconds: int = 5
    instance: int = 0
    rate_file: Path | None = None
    """Contains the current rate, while the benchmark changes it."""

    @classmethod
    def from_environment(cls, given: Mapping[str, str]) -> Self:
        if "DATABASE_URL" not in given:
            raise SystemExit("DATABASE_URL is not set")
        rate_file = given.get("PRODUCER_RATE_CONTROL_FILE")
        found = cls(
            url=given["DATABASE_URL"],
            scenario=given.get("SCENARIO", cls.scenario),
            mode=given.get("PRODUCER_MODE", cls.mode),
            rate=float(given.get("PRODUCER_RATE", cls.rate)),
            batch_max=max(1, int(given.get("PRODUCER_BATCH_MAX", cls.batch_max))),
            batch_ms=max(1, int(given.get("PRODUCER_BATCH_MS", cls.batch_ms))),
            target_depth=int(given.get("TARGET_DEPTH", cls.target_depth)),
            workers=int(given.get("WORKER_COUNT", cls.workers)),
            payload_bytes=int(given.get("JOB_PAYLOAD_BYTES", cls.payload_bytes)),
            work_ms=float(given.get("JOB_WORK_MS", cls.work_ms)),
            sample_seconds=max(1, int(given.get("SAMPLE_EVERY_S", cls.sample_seconds))),
            instance=int(given.get("BENCH_INSTANCE_ID", cls.instance)),
            rate_file=Path(rate_file) if rate_file else None,
        )
        if found.scenario != cls.scenario:
            raise SystemExit(f"SCENARIO is {found.scenario!r}; only {cls.scenario!r} is known")
        return found

    def current_rate(self) -> float:
        """Jobs per second, as the benchmark wants them now."""
        if self.rate_file is not None:
            with suppress(OSError, ValueError):
                return float(self.rate_file.read_text())
        return self.rate

    @property
    def is_observer(self) -> bool:
        return self.instance == 0


class System(ABC):
    """A queue that is measured; for each job it calls `run_job` with the time of its creation."""

    NAME: ClassVar[str]
    PACKAGE: ClassVar[str]
    TABLES: ClassVar[Sequence[str]]
    DEPTH: ClassVar[str]
    """Counts the waiting jobs."""

    def __init__(self, contract: Contract, run_job: RunJob) -> None:
        self.contract, self.run_job = contract, run_job

    @abstractmethod
    async def open(self) -> None:
        """Connect, and create the tables if they are missing."""

    @abstractmethod
    async def add(self, jobs: Sequence[Job]) -> None:
        """Queue these jobs; they are committed on return."""

    @abstractmethod
    async def work(self) -> None:
        """Process jobs until cancelled."""

    @abstractmethod
    async def close(self) -> None: ...


class LatencyWindow:
    """Times of the last 30 seconds, to three digits, in bounded memory: a count for each value and second."""

    def __init__(self, seconds: int = WINDOW_SECONDS) -> None:
        self._counts: deque[tuple[int, Counter[float]]] = deque(maxlen=seconds)

    def add(self, milliseconds: float, now: float) -> None:
        second = int(now)
        if not self._counts or self._counts[-1][0] != second:
            self._counts.append((second, Counter()))
        self._counts[-1][1][float(f"{milliseconds:.3g}")] += 1

    def percentiles(self, shares: Sequence[float], now: float) -> list[float]:
        """The percentile for each of these shares; 0 if nothing happened."""
        oldest = int(now) - (self._counts.maxlen or 0)
        counts: Counter[float] = Counter()
        for second, each in self._counts:
            if second > oldest:
                counts.update(each)
        return [_percentile(counts, share) for share in shares]


def _percentile(counts: Counter[float], share: float) -> float:
    left = share * counts.total()
    for value in sorted(counts):
        left -= counts[value]
        if left <= 0:
            return value
    return 0.0


@dataclass
class Meter:
    """What this process has done so far."""

    enqueued: int = 0
    completed: int = 0
    depth: int = 0
    target_rate: float = 0
    latencies: LatencyWindow = field(default_factory=LatencyWindow)


class Pacer:
    """The number of jobs that are due, by the time that has passed, not by the number of turns."""

    def __init__(self, now: float) -> None:
        self._then, self._credit = now, 0.0

    def due(self, rate: float, now: float, most: int) -> int:
        self._credit = self._credit + rate * (now - self._then) if rate > 0 else 0.0
        self._then = now
        count = min(most, int(self._credit))
        self._credit -= count
        return count


async def produce(contract: Contract, system: System, meter: Meter, stopping: asyncio.Event) -> None:
    """Queue jobs at the current rate, or up to the requested depth; every call is counted."""
    pacer, padding = Pacer(time.monotonic()), "x" * contract.payload_bytes
    while not stopping.is_set():
        count = await _next_batch(contract, meter, pacer)
        jobs = [
            {"seq": meter.enqueued + number, "created_at": time.time(), "padding": padding}
            for number in range(count)
        ]
        try:
            if jobs:
                await system.add(jobs)
                meter.enqueued += count
        except Exception as error:  # noqa: BLE001 - whatever it was, the benchmark goes on
            _log(f"queueing {count} jobs failed: {error!r}")
            await asyncio.sleep(FAILED_SECONDS)


async def _next_batch(contract: Contract, meter: Meter, pacer: Pacer) -> int:
    if contract.mode == "depth-target":
        missing = contract.target_depth - meter.depth
        if missing <= 0:
            await asyncio.sleep(PAUSE_SECONDS)
        return max(0, min(contract.batch_max, missing))
    await asyncio.sleep(contract.batch_ms / 1000)
    meter.target_rate = contract.current_rate()
    return pacer.due(meter.target_rate, time.monotonic(), contract.batch_max)


async def observe(contract: Contract, system: System, meter: Meter) -> None:
    """Count the waiting jobs repeatedly, over a separate connection."""
    pause = PAUSE_SECONDS if contract.mode == "depth-target" else DEPTH_SECONDS
    while True:
        with suppress(psycopg.Error, OSError):
            async with await psycopg.AsyncConnection.connect(contract.url, autocommit=True) as connection:
                while True:
                    found = await (await connection.execute(system.DEPTH.encode())).fetchone()
                    meter.depth = found[0] if found else 0
                    await asyncio.sleep(pause)
        await asyncio.sleep(pause)


class Sampler:
    """Writes what has happened since the last sample."""

    def __init__(self, contract: Contract, system: System, meter: Meter) -> None:
        self._contract, self._system, self._meter = contract, system, meter
        self._then, self._enqueued, self._completed = time.monotonic(), 0, 0

    async def run(self) -> None:
        """Sample at whole multiples of the interval, so that several systems sample at the same times."""
        every = self._contract.sample_seconds
        while True:
            tick = (time.time() // every + 1) * every
            while (left := tick - time.time()) > 0:  # noqa: ASYNC110 - a timer may come a moment too early
                await asyncio.sleep(left)
            self.write()

    def write(self) -> None:
        now, meter = time.monotonic(), self._meter
        seconds = max(0.001, now - self._then)
        enqueued, completed = meter.enqueued - self._enqueued, meter.completed - self._completed
        self._then, self._enqueued, self._completed = now, meter.enqueued, meter.completed
        p50, p95, p99 = meter.latencies.percentiles((0.5, 0.95, 0.99), now)
        every = self._contract.sample_seconds
        self._write("claim_p50_ms", p50, WINDOW_SECONDS)
        self._write("claim_p95_ms", p95, WINDOW_SECONDS)
        self._write("claim_p99_ms", p99, WINDOW_SECONDS)
        self._write("enqueue_rate", enqueued / seconds, every)
        self._write("completion_rate", completed / seconds, every)
        self._write("enqueued_total", meter.enqueued)
        self._write("completed_total", meter.completed)
        self._write("queue_depth", meter.depth)
        self._write("producer_target_rate", meter.target_rate)

    def _write(self, metric: str, value: float, window_seconds: float = 0) -> None:
        if metric in OBSERVED and not self._contract.is_observer:
            return
        _emit(
            t=_now(),
            system=self._system.NAME,
            kind="adapter",
            subject_kind="adapter",
            subject="",
            metric=metric,
            value=value,
            window_s=window_seconds,
            instance_id=self._contract.instance,
        )


def describe(contract: Contract, system: System) -> None:
    """Write the descriptor, which must agree with the static manifest."""
    number = version(system.PACKAGE)
    _emit(
        kind="descriptor",
        system=system.NAME,
        event_tables=list(system.TABLES),
        extensions=[],
        version=number,
        schema_version=number,
        db_name=urlsplit(contract.url).path.lstrip("/"),
        started_at=_now(),
        instance_id=contract.instance,
    )


async def main(name: str = "trax") -> None:
    contract, meter = Contract.from_environment(os.environ), Meter()

    async def run_job(created_at: float) -> None:
        meter.latencies.add(max(0.0, time.time() - created_at) * 1000, time.monotonic())
        if contract.work_ms:
            await asyncio.sleep(contract.work_ms / 1000)
        meter.completed += 1

    module: Any = importlib.import_module(SYSTEMS[name])
    system: System = module.PublicSystem(contract, run_job)
    await system.open()
    describe(contract, system)
    sampler = Sampler(contract, system, meter)
    try:
        await _run_until_signal(contract, system, meter, sampler)
    finally:
        await system.close()
        sampler.write()


async def _run_until_signal(contract: Contract, system: System, meter: Meter, sampler: Sampler) -> None:
    """Until SIGTERM, or until a duty fails."""
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stopping.set)
    producer = asyncio.create_task(produce(contract, system, meter, stopping))
    duties = [
        system.work(),
        sampler.run(),
        *([observe(contract, system, meter)] if contract.is_observer else []),
    ]
    tasks = [producer, *map(asyncio.create_task, duties)]
    await asyncio.wait([*tasks, asyncio.create_task(stopping.wait())], return_when=asyncio.FIRST_COMPLETED)
    stopping.set()
    await asyncio.wait([producer], timeout=LAST_CALL_SECONDS)
    ended = [task for task in tasks if task.done()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()


def _emit(**record: Any) -> None:
    print(json.dumps(record), flush=True)


def _log(text: str) -> None:
    print(f"[public_queue] {text}", file=sys.stderr, flush=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


if __name__ == "__main__":
    run_in_loop(main(*sys.argv[1:]))
