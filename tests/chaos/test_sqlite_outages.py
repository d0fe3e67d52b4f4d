"""One file: its process is killed and started again, its disk is full, and others lock it."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.support.chaos import chaos_fleet
from tests.support.chaos_load import LEASE_SECONDS, last, start_fleet, under_load
from tests.support.small_disk import small_disk
from tests.support.waiting import until

from trax.records import State

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [f"job-{number}" for number in range(200)]
NEVER = 60
HOLD_LOCKS = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
while True:
    connection.execute("BEGIN IMMEDIATE")
    time.sleep(float(sys.argv[2]))
    connection.execute("ROLLBACK")
"""


def test_the_only_process_is_killed_and_started_again(tmp_path: Path) -> None:
    file = tmp_path / "trax.db"
    with chaos_fleet(tmp_path, f"sqlite:///{file}") as fleet:
        fleet.queue(*NAMES)
        fleet.hold("job-10")

        for share in (1, 2, 3):
            process = fleet.start("run", local_worker_count=4, max_active_jobs=4, worker_lost_after=1)
            until(lambda share=share: fleet.count(State.COMPLETED) >= share * len(NAMES) // 4)
            process.ended(signal.SIGKILL)
        fleet.release("job-10")
        fleet.start("run", local_worker_count=4, max_active_jobs=4, worker_lost_after=1)
        fleet.has_completed(NAMES, at_most=4)

        fleet.nothing_is_lost_or_doubled(NAMES)
        lost = [record for record in fleet.records() if record.state is not State.COMPLETED]
        assert {record.failure_exception for record in lost} == {"WorkerLost"}
    with sqlite3.connect(file) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()


def test_the_disk_is_full_for_a_while(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk") as full,
        chaos_fleet(tmp_path, f"sqlite:///{tmp_path}/disk/trax.db") as fleet,
    ):
        (process,) = start_fleet(fleet, "run")
        with under_load(fleet, "full") as load:
            load.settles()
            load.burst()
            with full(process.pid):
                until(lambda: "check the disk" in process.log)
                last(LEASE_SECONDS)
            load.recovers(fleet.store.read(fleet.store.now))
        load.judge(may_fail=frozenset())

        assert process.ended(signal.SIGTERM) == 0


def test_others_hold_the_write_lock_again_and_again(tmp_path: Path) -> None:
    file = tmp_path / "trax.db"
    with chaos_fleet(tmp_path, f"sqlite:///{file}") as fleet, ExitStack() as storm:
        start_fleet(fleet, "run", "worker", worker_lost_after=NEVER)
        with under_load(fleet, "storm") as load:
            load.settles()
            load.burst()
            for seconds in (0.1, 0.5, LEASE_SECONDS):
                command = [sys.executable, "-c", HOLD_LOCKS, file, str(seconds)]
                holder = storm.enter_context(subprocess.Popen(command))
                storm.callback(holder.kill)
            last(2 * LEASE_SECONDS)
            storm.close()
            load.recovers(fleet.store.read(fleet.store.now))
        load.judge(may_fail=frozenset())
