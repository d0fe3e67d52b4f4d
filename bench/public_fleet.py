"""The processes of one system in the public queue benchmark: started, killed, and read while they run."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, Self, cast

import psycopg
from psycopg import sql

from bench.children import PROJECT, ChildFailed
from bench.figures import LATEST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.contenders import Contender

WORKERS: Final = 64
SAMPLE_SECONDS: Final = 1
START_SECONDS: Final = 60
END_SECONDS: Final = 15
TOTAL: Final = "enqueued_total"
LOG: Final = LATEST / "public.log"
"""The errors of the processes; the disturbances cause most of them."""


class Sample(NamedTuple):
    """One figure of one process, and the middle of its second."""

    middle: float
    instance: int
    metric: str
    value: float


class Fleet:
    """All processes of a system share its load; leaving the block ends them."""

    def __init__(self, contender: Contender, url: str, size: int) -> None:
        self._contender, self._url, self._size = contender, url, size
        self._folder = tempfile.TemporaryDirectory()
        self._rate_file = Path(self._folder.name) / "rate"
        self._running: dict[int, subprocess.Popen[str]] = {}
        self._readers: list[Thread] = []
        self._lock = Lock()
        self._accepted: dict[int, int] = {}
        """By process id: the number of jobs each had queued when it last reported."""
        self.samples: list[Sample] = []
        self.tables: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running.values():
            process.kill()
        self._join()
        self._folder.cleanup()

    @property
    def accepted(self) -> int:
        """The least number of queued jobs; those of a killed process's last second are unknown."""
        return sum(self._accepted.values())

    def offer(self, rate: float) -> None:
        """Jobs a second, of all processes together."""
        new = self._rate_file.with_suffix(".new")
        new.write_text(str(rate / self._size))
        new.replace(self._rate_file)

    def start(self, number: int) -> None:
        system = self._contender.name.lower()
        LOG.parent.mkdir(parents=True, exist_ok=True)
        with LOG.open("a") as log:
            process = subprocess.Popen(
                [self._contender.python, "-m", "bench.adapters.public_queue", system],
                cwd=PROJECT,
                env=os.environ | self._environment(number),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._running[number] = process
        reader = Thread(target=self._read, args=(process, number))
        reader.start()
        self._readers.append(reader)

    def _environment(self, number: int) -> dict[str, str]:
        return {
            "DATABASE_URL": self._url,
            "SCENARIO": "long_horizon",
            "PRODUCER_MODE": "fixed",
            "PRODUCER_RATE_CONTROL_FILE": str(self._rate_file),
            "WORKER_COUNT": str(max(2, WORKERS // self._size)),
            "SAMPLE_EVERY_S": str(SAMPLE_SECONDS),
            "BENCH_INSTANCE_ID": str(number),
        }

    def _read(self, process: subprocess.Popen[str], number: int) -> None:
        with cast("IO[str]", process.stdout) as lines:
            for line in lines:
                self._note(json.loads(line), process.pid, number)

    def _note(self, said: dict[str, Any], pid: int, number: int) -> None:
        with self._lock:
            if said["kind"] == "descriptor":
                self.tables = said["event_tables"]
            elif said["metric"] == TOTAL:
                self._accepted[pid] = int(said["value"])
            else:
                middle = time.monotonic() - SAMPLE_SECONDS / 2
                self.samples.append(Sample(middle, number, said["metric"], said["value"]))

    def start_all(self) -> None:
        """Return when each process has done jobs. The first one starts earlier: it creates the tables."""
        for number in range(self._size):
            self.start(number)
            self._wait(lambda: bool(self.tables))
        self._wait(lambda: self._working() == self._size)

    def _wait(self, condition: Callable[[], bool]) -> None:
        give_up = time.monotonic() + START_SECONDS
        while not condition():
            if time.monotonic() > give_up or any(one.poll() is not None for one in self._running.values()):
                raise ChildFailed(f"{self._contender.name} did not start working; see {LOG}")
            time.sleep(0.05)

    def _working(self) -> int:
        with self._lock:
            done = [one for one in self.samples if one.metric == "completion_rate" and one.value > 0]
        return len({one.instance for one in done})

    def kill(self, number: int) -> None:
        process = self._running.pop(number)
        process.kill()
        process.wait()

    def stop(self) -> list[int]:
        """Ask all processes to end; return their exit codes. One that did not end was killed: -9."""
        for process in self._running.values():
            process.terminate()
        codes: list[int] = []
        for process in self._running.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
            process.kill()
            codes.append(process.wait())
        self._running.clear()
        self._join()
        return codes

    def _join(self) -> None:
        for reader in self._readers:
            reader.join()
        self._readers.clear()

    def dead_rows(self) -> int:
        """The dead rows of all tables that the system writes while jobs run."""
        query = (
            "SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables"
            " WHERE schemaname || '.' || relname = ANY(%s)"
        )
        with psycopg.connect(self._url, autocommit=True) as connection:
            found = connection.execute(query, (self.tables,)).fetchone()
        return int(found[0]) if found else 0


class Readers:
    """Connections that repeatedly read whole tables in one old snapshot each, as a report would."""

    def __init__(self, url: str, tables: Sequence[str], count: int) -> None:
        self._url, self._tables, self._count = url, tables, count
        self._ended = Event()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for _ in range(self._count):
            reader = Thread(target=self._read)
            reader.start()
            self._stack.callback(reader.join)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._stack.close()

    def _read(self) -> None:
        with psycopg.connect(self._url) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            while not self._ended.wait(0.05):
                for table in self._tables:
                    query = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(*table.split(".")))
                    connection.execute(query)
