"""The app that the benchmarks run: trains that do nothing, and one that reports when it started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel

from bench.adapters import jobs
from trax import Trax

if TYPE_CHECKING:
    from trax.train import Train


class Job(BaseModel):
    number: int


class BenchApp(NamedTuple):
    app: Trax
    noop: Train[Job, None]
    tell: Train[float, None]


def build_app(url: str | None = None, **settings: Any) -> BenchApp:
    """Without a URL, $TRAX_DATABASE_URL is used; other $TRAX_… variables set the rest."""
    app = Trax(url, **settings)

    @app.train
    async def noop(job: Job) -> None:
        jobs.do_nothing(job)

    @app.train
    def noop_sync(job: Job) -> None:  # pyright: ignore[reportUnusedFunction] - queued by its name
        jobs.do_nothing(job)

    @app.train
    async def tell(asked: float) -> None:
        jobs.tell(asked)

    return BenchApp(app, noop, tell)


app = build_app().app
