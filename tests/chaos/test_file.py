"""One process and one file: killed in the middle of everything, and started again."""

from __future__ import annotations

import signal
import sqlite3
from typing import TYPE_CHECKING

from tests.support.chaos import town
from tests.support.waiting import until

from trax.records import State

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [f"job-{number}" for number in range(200)]


def test_the_only_process_is_killed_and_started_again(tmp_path: Path) -> None:
    file = tmp_path / "trax.db"
    with town(tmp_path, f"sqlite:///{file}") as yard:
        yard.queue(*NAMES)
        yard.hold("job-10")

        for share in (1, 2, 3):
            process = yard.start("run", local_worker_count=4, max_active_jobs=4, worker_lost_after=1)
            until(lambda share=share: yard.count(State.COMPLETED) >= share * len(NAMES) // 4)
            process.ended(signal.SIGKILL)
        yard.release("job-10")
        yard.start("run", local_worker_count=4, max_active_jobs=4, worker_lost_after=1)
        yard.has_completed(NAMES, at_most=4)

        yard.nothing_is_lost_or_doubled(NAMES)
        lost = [record for record in yard.records() if record.state is not State.COMPLETED]
        assert {record.failure_exception for record in lost} == {"WorkerLost"}
    with sqlite3.connect(file) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()
