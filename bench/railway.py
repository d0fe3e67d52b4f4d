"""The app that the benchmarks run: a job that does nothing, and one that tells when it began."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel

from bench.children import say
from trax import Trax

if TYPE_CHECKING:
    from trax.train import Train


class Job(BaseModel):
    number: int


class Railway(NamedTuple):
    app: Trax
    noop: Train[Job, None]
    tell: Train[Job, None]


def railway(url: str | None = None, **settings: Any) -> Railway:
    """Without an address it is $TRAX_DATABASE_URL, and $TRAX_… may set the rest."""
    app = Trax(url, **settings)

    @app.train
    async def noop(job: Job) -> None:
        """Do nothing."""

    @app.train
    async def tell(job: Job) -> None:  # noqa: ARG001
        say(started=time.monotonic())

    return Railway(app, noop, tell)


app = railway().app
