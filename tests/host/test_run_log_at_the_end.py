"""The last progress of a run is in its record, even if the record is locked at its end."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING

import httpx2
import psycopg
import pytest
from tests.support.waiting import until

from trax import Trax, current
from trax.remote.http.workers import HttpWorkers
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import Generator

SECRET = "a secret for the tests"


class Holder:
    """Somebody who has a record to itself until another one waits for it."""

    def __init__(self, url: str) -> None:
        self._holding = psycopg.connect(url)
        self._looking = psycopg.connect(url, autocommit=True)

    def hold(self, metadata_id: int) -> None:
        self._holding.execute("SELECT FROM trax.metadata WHERE id = %s FOR UPDATE", [metadata_id])

    def let_go_when_waited_for(self) -> None:
        until(self._is_waited_for)
        self._holding.rollback()

    def close(self) -> None:
        self._holding.close()
        self._looking.close()

    def _is_waited_for(self) -> bool:
        return self._looking.execute("SELECT FROM pg_locks WHERE NOT granted").rowcount > 0


@pytest.fixture
def holder(postgres_url: str) -> Generator[Holder]:
    with closing(Holder(postgres_url)) as made:
        yield made


@pytest.mark.parametrize("mode", ["here", "response"])
async def test_the_last_progress_of_a_run_is_kept_though_its_record_is_locked(
    mode: str, postgres_url: str, holder: Holder
) -> None:
    app = Trax(postgres_url)

    @app.train
    async def work(name: str) -> str:
        run = current()
        assert run
        await run.progress(0.75, "nearly all of it")
        holder.hold(run.metadata_id)
        return name

    if mode == "response":
        transport = httpx2.ASGITransport(app.http_endpoint(SECRET))
        app.submitters.default = HttpWorkers("http://far", SECRET, mode="response", transport=transport)

    async with Harness(app) as h:
        await app.queue(work, "x")
        await asyncio.gather(h.run_until_idle(), asyncio.to_thread(holder.let_go_when_waited_for))
        await h.cycle("run_log")
        (run,) = await app.executions.list(train="work")

    assert (run.state, run.output) == ("completed", "x")
    assert (run.progress, run.progress_message) == (0.75, "nearly all of it")
