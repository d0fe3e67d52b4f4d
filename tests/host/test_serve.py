"""`app.serve`: what it tells its observer, and in which order it starts and stops."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from trax import Trax, every
from trax.cli import serve
from trax.errors import StoreUnavailable
from trax.server.roles import ProcessRole, ServerObserver

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator
    from pathlib import Path


class Diary(ServerObserver):
    """Writes down each step, and requests a stop once the app runs."""

    def __init__(self, app: Trax, error: Exception | None = None) -> None:
        self._app = app
        self._error = error
        self.steps: list[str] = []

    def on_progress(self, done: int, total: int) -> None:
        self.steps.append(f"{done} of {total}")

    @asynccontextmanager
    async def while_running(self, stop: asyncio.Event, /) -> AsyncGenerator[None]:
        self.steps.append(f"runs: {self._app.is_running}")
        if self._error is not None:
            raise self._error
        stop.set()
        yield
        self.steps.append(f"stop requested: {self._app.is_running}")

    @asynccontextmanager
    async def while_stopping(self, interrupt: asyncio.Event, /) -> AsyncGenerator[None]:
        self.steps.append(f"stops: {self._app.is_running}, interrupting: {interrupt.is_set()}")
        yield
        self.steps.append(f"stopped: {not self._app.is_running}")


@pytest.fixture
def app() -> Trax:
    app = Trax("memory://")

    @app.train
    def brew(cups: int) -> int:
        return cups

    app.schedule(brew, "brew", 1, every(hours=1))
    return app


async def test_an_observer_is_notified_of_each_step(app: Trax) -> None:
    diary = Diary(app)

    await app.serve(observer=diary)

    assert diary.steps == [
        "1 of 1",
        "runs: True",
        "stop requested: True",
        "stops: True, interrupting: False",
        "stopped: True",
    ]


async def test_an_observer_that_fails_does_not_leave_the_app_running(app: Trax) -> None:
    diary = Diary(app, RuntimeError("no terminal"))

    with pytest.raises(RuntimeError, match="no terminal"):
        await app.serve("scheduler", observer=diary)

    assert diary.steps[-1] == "stopped: True"


async def test_a_failed_start_is_not_announced_as_running(app: Trax) -> None:
    diary = Diary(app)

    with pytest.raises(Exception, match="invalid role 'nobody'"):
        await app.serve("nobody", observer=diary)

    assert diary.steps == []


async def test_a_database_that_is_lost_right_after_the_start_ends_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def lost(*_: object) -> None:
        raise StoreUnavailable("the database is gone")

    monkeypatch.setattr(serve, "read_live_view", lost)
    app = Trax(f"sqlite:///{tmp_path}/jobs.db")
    with serve.ServerCommand(app, ProcessRole.ALL, serve.LogOutput(), seconds=0) as command:
        await app.serve(observer=command)

    assert "could not be read: the database is gone" in caplog.text
