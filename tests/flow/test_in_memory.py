"""The same engine without a database."""

from __future__ import annotations

from datetime import UTC, datetime

from trax import Trax, every
from trax.testing import Harness


async def test_a_due_manifest_runs_and_a_failing_one_does_not_stop_the_next() -> None:
    app = Trax("memory://")
    ran: list[str] = []

    @app.train
    async def job(name: str) -> str:
        ran.append(name)
        if name == "bad":
            raise RuntimeError("no luck")
        return name

    for name in ("first", "bad", "last"):
        app.schedule(job, name, name, every(minutes=5))

    async with Harness(app, now=datetime(2027, 3, 1, 10, tzinfo=UTC)) as h:
        await h.run_until_idle()

        assert sorted(ran) == ["bad", "first", "last"]
        states = {run.manifest: run.state for run in await app.executions.list(train="job")}
        assert states == {"first": "completed", "bad": "failed", "last": "completed"}

        await h.advance(minutes=5)
        await h.run_until_idle()

        assert sorted(ran[3:]) == ["bad", "first", "last"]
