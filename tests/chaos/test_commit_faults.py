"""A real server and its callers, while commits are refused, lost or doubled, and connections are cut.

Everything goes through the proxy: pooled connections, the direct connections of both event loops, and the
listener. `TRAX_FAULT_SEEDS=50 .venv/bin/pytest tests/chaos/test_commit_faults.py` looks further.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING

import psycopg
import pytest
from pydantic import BaseModel
from tests.support.fault_proxy import COMMIT_FAULTS, DrawnFaults, Fault, fault_proxy

from trax import Trax, current
from trax.errors import StoreUnavailable

if TYPE_CHECKING:
    from trax.worker.entry import QueuedEntry

SEEDS = range(1, 1 + int(os.environ.get("TRAX_FAULT_SEEDS", "2")))
JOBS = 120
"""At least: more are queued until each fault was made."""
AT_ONCE = 5
CHANCE = 0.3
FAULTS = (*COMMIT_FAULTS, Fault.DOUBLED)
LIMIT = 6


class Job(BaseModel):
    number: int


class Site:
    """The jobs that were accepted, and the runs that were executed."""

    def __init__(self, url: str) -> None:
        self.app = Trax(
            url,
            max_active_jobs=LIMIT,
            polling_interval=0.5,
            local_polling_interval=0.5,
            heartbeat_interval=timedelta(seconds=1),
            worker_lost_after=timedelta(seconds=20),
        )
        self.accepted: dict[int, QueuedEntry] = {}
        self.unsure = 0
        self.executed: Counter[int] = Counter()
        self.active = self.most_active = 0
        self.app.group("g", max_active_jobs=3)

        @self.app.train(max_retries=3)
        async def work(job: Job) -> int:
            run = current()
            assert run
            self.executed[run.metadata_id] += 1
            self.active += 1
            self.most_active = max(self.most_active, self.active)
            await asyncio.sleep(0)
            self.active -= 1
            return job.number

        self.train = work

    async def queue(self, number: int) -> None:
        group = "g" if number % 3 == 0 else None
        try:
            self.accepted[number] = await self.app.queue(self.train, Job(number=number), group=group)
        except StoreUnavailable:
            self.unsure += 1


@pytest.mark.parametrize("seed", SEEDS)
async def test_accepted_jobs_run_once_under_any_fault_of_a_commit(postgres_url: str, seed: int) -> None:
    with fault_proxy(postgres_url) as proxy:
        site = Site(proxy.url)
        async with asyncio.timeout(120), site.app:
            proxy.follow(DrawnFaults(Random(seed), CHANCE, FAULTS))  # noqa: S311
            jobs = 0
            while jobs < JOBS or not set(FAULTS) <= proxy.counts.keys():
                await asyncio.gather(*map(site.queue, range(jobs, jobs + AT_ONCE)))
                jobs += AT_ONCE
            proxy.clear()
            for entry in site.accepted.values():
                await entry.wait()

    assert max(site.executed.values()) == 1, "a run was executed twice"
    assert site.most_active <= LIMIT
    rows = entries_by_job(postgres_url)
    assert [number for number, rows_of_job in rows.items() if rows_of_job != 1] == [], "queued twice"
    assert site.accepted.keys() <= rows.keys(), "an accepted job is not stored"
    assert len(site.accepted) + site.unsure == jobs


def entries_by_job(url: str) -> dict[int, int]:
    """How many entries there are of each job."""
    query = "SELECT CAST(input ->> 'number' AS int), count(*) FROM trax.work_queue GROUP BY 1"
    with psycopg.connect(url) as connection:
        return dict(connection.execute(query).fetchall())
