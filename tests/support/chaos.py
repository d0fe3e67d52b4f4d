"""Real processes on one database, which may be killed, stopped and cut off, and what came of their work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support import listing
from tests.support.verified import assert_clean_store
from tests.support.waiting import until

from trax import Retry, Trax
from trax.records import State
from trax.store import gate, workers

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from trax import Metadata
    from trax.records import WorkerRecord
    from trax.store import Store

TRAX = Path(sys.executable).with_name("trax")
HERE = Path(__file__).parent
BEAT_SECONDS = 0.2
RETRY = Retry(max_retries=5, delay=timedelta(0))
QUICK = {
    "heartbeat_interval": BEAT_SECONDS,
    "manifest_manager_polling_interval": 0.1,
    "job_dispatcher_polling_interval": 0.1,
    "local_polling_interval": 0.1,
    "shutdown_timeout": 0.1,
}


class JobRun(NamedTuple):
    """One execution, as the job itself has noted it."""

    metadata_id: int
    name: str
    pid: int


class Process:
    """One `trax` command under way. What it logs goes to a file."""

    def __init__(self, folder: Path, command: list[str | Path], environment: dict[str, str]) -> None:
        self._log = folder / f"log-{len(list(folder.glob('log-*')))}"
        self.still_at: list[int] = []
        """When it was killed or stopped, by the clock that processes share."""
        with self._log.open("wb") as log:
            self._popen = subprocess.Popen(
                command, cwd=folder, env={**os.environ, **environment}, stdout=log, stderr=log
            )

        self.works = command[1] != "scheduler"
        """Whether jobs run in it."""

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def is_alive(self) -> bool:
        return self._popen.poll() is None

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def send(self, number: signal.Signals) -> None:
        if number in {signal.SIGKILL, signal.SIGSTOP}:
            self.still_at.append(time.monotonic_ns())
        self._popen.send_signal(number)

    def ended(self, number: signal.Signals | None = None) -> int:
        """Send a signal, and wait for the end; returns the exit code."""
        if number is not None:
            self.send(number)
        return self._popen.wait(120)

    def end(self) -> None:
        self._popen.kill()
        self._popen.wait(60)


class ChaosFleet:
    """Processes that share a database and a folder."""

    def __init__(self, folder: Path, url: str, stack: ExitStack, jobs: str) -> None:
        self._folder = folder
        self._url = url
        self._stack = stack
        self._jobs = jobs
        self._client = Trax(url)
        self.processes: list[Process] = []
        for train in (work, deaf, paced):
            self._client.train(retry=RETRY)(train)
        stack.callback(self._client.close)

    @property
    def store(self) -> Store:
        return self._client.context.store.open_blocking()

    def forget(self) -> None:
        """Let go of our own connections: they are dead when the server has stopped."""
        self._client.close()

    @property
    def url(self) -> str:
        return self._url

    def start(
        self,
        *words: str,
        url: str | None = None,
        dies: str | None = None,
        environment: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> Process:
        """Run a command of trax; settings are those that make it quick, and these."""
        given = {f"TRAX_{name.upper()}": str(value) for name, value in {**QUICK, **settings}.items()}
        given |= {"TRAX_DATABASE_URL": url or self._url, **(environment or {})}
        if dies is not None:
            given["DIES"] = dies
        role, *more = words
        process = Process(self._folder, [TRAX, role, f"{HERE / self._jobs}:app", *more], given)
        self._stack.callback(process.end)
        self.processes.append(process)
        return process

    def queue(self, *names: str, train: str = "work", group: str | None = None) -> None:
        self._client.sync.queue_many(train, names, group=group)

    def hold(self, *names: str) -> None:
        """Let these jobs go on until they are released."""
        for name in names:
            (self._folder / f"hold-{name}").touch()

    def release(self, *names: str) -> None:
        for name in names:
            (self._folder / f"hold-{name}").unlink()

    def lines(self, file: str) -> list[str]:
        path = self._folder / file
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def ran(self, name: str | None = None) -> list[JobRun]:
        """What was executed, in order; of one job, or of all."""
        noted = [JobRun(int(one), which, int(pid)) for one, which, pid in map(str.split, self.lines("ran"))]
        return [run for run in noted if name in {None, run.name}]

    def began(self, *names: str) -> list[JobRun]:
        """Wait until each of these jobs has begun; returns its last execution."""
        until(lambda: all(self.ran(name) for name in names))
        return [self.ran(name)[-1] for name in names]

    def records(self, name: str | None = None, train: str = "work") -> list[Metadata]:
        found = reversed(self.store.read(listing.runs, train=train, limit=100_000))
        return [record for record in found if name in {None, record.input}]

    def count(self, state: State) -> int:
        return sum(record.state is state for record in self.records())

    def active(self) -> int:
        """How many runs occupy a place under the limits."""
        return sum(self.store.read(gate.count_active_runs).values())

    def workers(self) -> list[WorkerRecord]:
        return self.store.read(workers.load_list)

    def has_workers(self, count: int) -> None:
        """Wait until so many workers are there."""
        until(lambda: len(self.workers()) == count)

    def has_completed(self, names: Iterable[str], *, at_most: int | None = None) -> None:
        """Wait until each of these jobs is done; whenever we look, no more than so many may be active."""
        wanted = set(names)

        def are_done() -> bool:
            if at_most is not None:
                assert self.active() <= at_most
            return wanted <= {record.input for record in self.records() if record.state is State.COMPLETED}

        until(are_done)

    def nothing_is_lost_or_doubled(self, names: Iterable[str]) -> None:
        """Each of these jobs has one completed record, no record was executed twice, and nothing is left."""
        records, ran = self.records(), self.ran()
        completed = [record for record in records if record.state is State.COMPLETED]
        assert Counter(record.input for record in completed) == Counter(names)
        assert max(Counter(run.metadata_id for run in ran).values()) == 1
        assert {record.id for record in completed} <= {run.metadata_id for run in ran}
        assert self.active() == 0
        assert_clean_store(self.store)


@contextmanager
def chaos_fleet(folder: Path, url: str, jobs: str = "chaos_jobs.py") -> Generator[ChaosFleet]:
    """A fleet whose processes are all gone after the block."""
    with ExitStack() as stack:
        yield ChaosFleet(folder, url, stack, jobs)


def process_state(pid: int) -> str | None:
    """One letter: R runs, S sleeps, T stands still, Z has ended and nobody has asked. None: it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return stat.rpartition(")")[2].split()[0]


async def work(_name: str) -> None:
    """The train as whoever queues it knows it."""


def deaf(_name: str) -> None:
    """The same."""


async def paced(_name: str) -> None:
    """The same."""
