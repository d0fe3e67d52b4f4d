"""The dashboard beside the jobs of a process: on a socket, in a thread and in an event loop of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from tests.support.waiting import until
from tests.support.web_app import access

from trax import Trax
from trax.engine.open_store import use_web_lane
from trax.store import Store
from trax.web import Access, Role, serve
from trax.web.serve import HttpConnection, ListenAddress, WebListener, WebServer

if TYPE_CHECKING:
    from asyncio import Transport
    from collections.abc import AsyncGenerator
    from pathlib import Path

ANYBODY = Access(allow_anonymous=True)


@pytest.fixture
async def app(url: str) -> AsyncGenerator[Trax]:
    app = Trax(url, polling_interval=0.1, heartbeat_interval=0.1, worker_lost_after=5)
    yield app
    app.close()


async def test_no_answer_waits_for_a_word_about_its_first_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    connected, delayed = HttpConnection.connection_made, list[bool]()

    def note(self: HttpConnection, transport: Transport) -> None:
        served: socket.socket = transport.get_extra_info("socket")
        delayed.append(not served.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        connected(self, transport)

    monkeypatch.setattr(HttpConnection, "connection_made", note)
    app = Trax("memory://")
    doorway = WebListener(ListenAddress(port=0), Access(insecure_local=True))
    async with doorway.serve(app) as address, httpx2.AsyncClient(timeout=60) as client:
        answers = [await client.get(f"{address}{path}") for path in ("/", "/health")]
    app.close()

    assert [answer.status_code for answer in answers] == [200, 200]
    assert delayed
    assert not any(delayed)


class Blocked:
    """A door whose keeper stands still: nothing else happens in the event loop of the dashboard."""

    def __init__(self) -> None:
        self.is_asked, self.may_go_on = threading.Event(), threading.Event()
        self.access = Access(authorize=self._authorize)

    def _authorize(self, _request: Any) -> Role:
        self.is_asked.set()
        assert self.may_go_on.wait(60)
        return Role.OPERATOR


async def test_a_dashboard_that_stands_still_delays_neither_a_job_nor_a_beat(app: Trax) -> None:
    @app.train
    async def work(number: int) -> int:
        return number

    door = Blocked()
    async with app, WebListener(ListenAddress(0), door.access).serve(app) as address:
        (worker,) = await app.workers.list()

        def beaten_at() -> float:
            return app.context.heartbeat.last_heartbeat_at(worker.worker.id) or 0.0

        async with httpx2.AsyncClient(base_url=address, timeout=60) as client:
            asking = asyncio.create_task(client.get("/"))
            assert await asyncio.to_thread(door.is_asked.wait, 60)
            before = beaten_at()

            ran = [await (await app.queue(work, number)).wait(timeout=60) for number in range(3)]
            await asyncio.to_thread(until, lambda: beaten_at() > before)

            assert not asking.done()
            door.may_go_on.set()
            answer = await asking

    assert [(run.state, run.output) for run in ran] == [("completed", 0), ("completed", 1), ("completed", 2)]
    assert answer.status_code == 200


async def test_the_end_waits_only_so_long_for_a_dashboard_that_stands_still(
    app: Trax, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(serve, "STOP_SECONDS", 0.1)
    door = Blocked()
    async with httpx2.AsyncClient(timeout=60) as client:
        async with WebListener(ListenAddress(0), door.access).serve(app) as address:
            asking = asyncio.create_task(client.get(address))
            assert await asyncio.to_thread(door.is_asked.wait, 60)

        assert "dashboard: did not stop within 0.1 s; abandoning a request that blocks it" in caplog.text
        door.may_go_on.set()
        await asyncio.gather(asking, return_exceptions=True)
    await asyncio.to_thread(until, lambda: "trax web" not in {one.name for one in threading.enumerate()})


async def test_a_dashboard_that_fails_is_reported_and_comes_back(
    app: Trax, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(serve, "PAUSES", (0.0,))
    failures, turn = iter([RuntimeError("out of luck"), SystemExit(1)]), WebServer.main_loop

    async def fail(self: WebServer) -> None:
        if failure := next(failures, None):
            raise failure
        await turn(self)

    monkeypatch.setattr(WebServer, "main_loop", fail)
    async with (
        WebListener(ListenAddress(0), ANYBODY).serve(app) as address,
        httpx2.AsyncClient(timeout=30) as client,
    ):
        answer = await client.get(address)

    assert answer.status_code == 200
    failed = [one for one in caplog.records if "dashboard: failed; restarting" in one.getMessage()]
    assert [one.exc_info and one.exc_info[0] for one in failed] == [RuntimeError, SystemExit]


async def test_a_run_from_a_page_runs_in_the_loop_of_the_jobs(app: Trax) -> None:
    """Where the code of the user keeps what belongs to its loop, such as a pool of connections."""
    loops: list[Any] = []

    def note(*_: Any) -> None:
        loops.append(asyncio.get_running_loop())

    @app.train(on_queue=note, on_completed=note)
    async def work(number: int) -> int:
        note()
        return number

    async with app, WebListener(ListenAddress(0), access()).serve(app) as address:
        headers = {"Authorization": "Bearer an operator's token"}
        async with httpx2.AsyncClient(base_url=address, headers=headers, timeout=60) as client:
            ran = (await client.post("/api/v1/trains/work/run", json={"input": 7})).json()
            queued = (await client.post("/api/v1/trains/work/queue", json={"input": 8})).json()
            await client.post(f"/api/v1/executions/{ran['id']}/rerun")
            (entry,) = await app.audit.list(action="trains.run")

    assert (ran["state"], ran["output"], queued["status"]) == ("completed", 7, "queued")
    assert entry.actor == "deploy"
    assert len(loops) >= 4
    assert set(loops) == {asyncio.get_running_loop()}


async def test_a_run_from_a_page_that_is_broken_off_is_written_as_cancelled(app: Trax) -> None:
    begun = asyncio.Event()

    @app.train
    async def wait(_: int) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with app:
        async with httpx2.AsyncClient(timeout=60) as client:
            async with WebListener(ListenAddress(0), ANYBODY).serve(app) as address:
                asking = asyncio.create_task(
                    client.post(f"{address}/api/v1/trains/wait/run", json={"input": 1})
                )
                await begun.wait()
            await asyncio.gather(asking, return_exceptions=True)
        (run,) = await app.executions.list(train="wait")

    assert run.state == "cancelled"


def test_the_dashboard_has_connections_of_its_own(tmp_path: Path) -> None:
    app = Trax(f"sqlite:///{tmp_path}/trax.db")
    found: list[Store] = []

    def look() -> None:
        use_web_lane()
        found.append(app.context.store.open_blocking())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    callers = app.context.store.open_blocking()
    engines = {id(one._engine) for one in (callers, callers.engine_lane, *found)}  # pyright: ignore[reportPrivateUsage]
    app.close()

    assert found == [callers.web_lane]
    assert len(engines) == 3


async def test_pages_ask_through_the_lane_of_the_dashboard(
    app: Trax, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes: list[Store] = []
    ask = Store.ask

    async def note(self: Store, *args: Any, **how: Any) -> Any:
        if threading.current_thread().name == "trax web":
            lanes.append(self)
        return await ask(self, *args, **how)

    monkeypatch.setattr(Store, "ask", note)
    async with (
        WebListener(ListenAddress(0), ANYBODY).serve(app) as address,
        httpx2.AsyncClient(timeout=30) as client,
    ):
        answer = await client.get(f"{address}/executions")
    web = (await app.context.store.open()).web_lane

    assert answer.status_code == 200
    assert lanes
    assert {id(lane) for lane in lanes} == {id(web)}
