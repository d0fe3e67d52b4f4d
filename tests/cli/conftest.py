"""A small railway on a file of its own, and an operator who has nothing but its address."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from pydantic import BaseModel
from tests.support.operator import Operator

from trax import Retry, Trax, every
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)


class Hello(BaseModel):
    name: str


def railway(url: str) -> Trax:
    app = Trax(url)

    @app.train
    def greet(hello: Hello) -> str:
        logging.getLogger("jobs").warning("Hello, %s!", hello.name)
        return f"Hello, {hello.name}!"

    @app.train(retry=Retry(max_attempts=0))
    def divide(number: int) -> float:
        return 1 / number

    @app.train(retry=Retry(max_attempts=0))
    def complain(words: str) -> None:
        raise RuntimeError(words)

    app.schedule(greet, "greet-ada", Hello(name="Ada"), every(hours=1), group="etl")
    return app


class Railway:
    """The servers' side: runs what there is to run, when it is told to."""

    def __init__(self, url: str) -> None:
        self.app = railway(url)

    async def runs(self, *numbers: int, at: datetime = NOON) -> None:
        """Divide by these numbers, and do whatever else is due."""
        async with Harness(self.app, now=at) as h:
            for number in numbers:
                await self.app.queue("divide", number)
            for _ in range(3):  # not as a server, which would record the settings that it declares
                await h.cycle("manifest_manager")
                await h.cycle("job_dispatcher")
                await h.work()
            await h.cycle("run_log")


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/trax.db"


@pytest.fixture
def trains(file_url: str) -> Generator[Railway]:
    servers = Railway(file_url)
    yield servers
    servers.app.close()


@pytest.fixture
def operator(file_url: str, capsys: pytest.CaptureFixture[str]) -> Operator:
    return Operator(file_url, capsys)
