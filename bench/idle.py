"""What `trax run` with 100 idle slots costs: memory, processor time, and transactions."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg

from bench.children import PROJECT
from bench.databases import commits, database
from bench.figures import Sheet
from bench.options import Options
from bench.processes import PROC, cpu_seconds, megabytes
from trax.store import Store
from trax.testing import postgres

if TYPE_CHECKING:
    from collections.abc import Generator

SLOTS: Final = 100
START_SECONDS: Final = 60
GOAL_MEGABYTES: Final = 100
GOAL_SHARE: Final = 0.01


def main(options: Options) -> None:
    seconds = options.sized(20, 2)
    print(f"idle: `trax run` with {SLOTS} idle slots, for {seconds} s on PostgreSQL")
    if not PROC.is_dir():
        print("  (memory and processor time are read from /proc, which this system does not have)")
        return
    with postgres(durable=True) as server, database(server) as url, _run_server(url) as pid:
        time.sleep(options.sized(5, 1))  # to warm up
        cpu, done, started = cpu_seconds(pid), commits(server, url), time.perf_counter()
        time.sleep(seconds)
        took = time.perf_counter() - started
        share = (cpu_seconds(pid) - cpu) / took
        a_second = (commits(server, url) - done) / took
        memory = megabytes(pid)
    sheet = Sheet("idle", options)
    sheet.goal_at_most("memory", [memory], GOAL_MEGABYTES, ".0f", " MB")
    sheet.goal_at_most("processor, of a core", [share], GOAL_SHARE, ".2%")
    print(f"          transactions: {a_second:.1f} a second")
    sheet.figures = {"megabytes": memory, "share of a core": share, "transactions a second": a_second}
    sheet.save()


@contextmanager
def _run_server(url: str) -> Generator[int]:
    """The process, once its worker is registered."""
    store = Store(url)
    store.open()
    store.close()
    with subprocess.Popen(
        [Path(sys.executable).with_name("trax"), "run", "bench.app:app", "--concurrency", str(SLOTS)],
        cwd=PROJECT,
        env=os.environ | {"TRAX_DATABASE_URL": url},
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            _wait_for_worker(url, process)
            yield process.pid
        finally:
            process.terminate()


def _wait_for_worker(url: str, process: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + START_SECONDS
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute("SELECT 1 FROM trax.worker").fetchone() is None:
            assert process.poll() is None, f"trax run ended with status {process.returncode}"
            assert time.monotonic() < give_up, "trax run did not start in time"
            time.sleep(0.1)


if __name__ == "__main__":
    main(Options())
