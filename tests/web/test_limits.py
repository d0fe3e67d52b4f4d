"""Slow, large or many requests are cut off, and others are served."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from tests.support.waiting import until
from tests.support.web_app import BASE, OPERATOR, access, browser, railway

from trax.errors import DefinitionError
from trax.web import WebLimits, create, serve
from trax.web.serve import ListenAddress, WebListener
from trax.worker.capture import LogLimit

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trax import Trax

HALF_A_HEAD = b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n"
HEAD = HALF_A_HEAD + b"\r\n"
SIGNED = f"Authorization: Bearer {OPERATOR}\r\n".encode()
POST = b"POST /api/v1/settings HTTP/1.1\r\nHost: 127.0.0.1\r\n" + SIGNED


@pytest.fixture
async def app() -> AsyncGenerator[Trax]:
    app = railway("memory://")
    yield app
    app.close()


@asynccontextmanager
async def served(app: Trax, **limits: Any) -> AsyncGenerator[tuple[str, int]]:
    doorway = WebListener(ListenAddress(0), access(), WebLimits(**limits))
    async with doorway.serve(app) as address:
        host, _, port = address.removeprefix("http://").partition(":")
        yield host, int(port)


class Caller:
    """One connection, byte by byte. Reading gives up after ample time."""

    def __init__(self, address: tuple[str, int], said: bytes = b"") -> None:
        self._socket = socket.create_connection(address, timeout=30)
        self._socket.sendall(said)

    def say(self, said: bytes) -> None:
        self._socket.sendall(said)

    async def heard(self) -> bytes:
        """All until the other end closes the connection."""
        with self._socket:
            return await asyncio.to_thread(self._read, b"")

    async def answer(self) -> bytes:
        return await asyncio.to_thread(self._read, b"\r\n\r\n")

    def _read(self, end: bytes) -> bytes:
        found = b""
        while not (end and end in found):
            try:
                part = self._socket.recv(65536)
            except ConnectionResetError:
                break
            if not part:
                break
            found += part
        return found

    def close(self) -> None:
        self._socket.close()


async def test_half_a_head_is_waited_for_so_long_and_no_longer(
    app: Trax, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(app, head_seconds=0.2) as address:
        assert await Caller(address, HALF_A_HEAD).heard() == b""
        assert await Caller(address).heard() == b""

    assert "dashboard: closed a connection: its head took too long" in caplog.text


async def test_the_head_of_a_second_request_is_waited_for_no_longer(app: Trax) -> None:
    async with served(app, head_seconds=0.2) as address:
        caller = Caller(address, HEAD)
        assert b"200 OK" in await caller.answer()
        caller.say(HALF_A_HEAD)

        assert b"200 OK" not in await caller.heard()


async def test_an_idle_connection_is_closed(app: Trax) -> None:
    async with served(app, head_seconds=60, idle_seconds=1) as address:
        assert b"200 OK" in await Caller(address, HEAD).heard()


async def test_a_body_that_does_not_arrive_is_answered_and_its_connection_closed(app: Trax) -> None:
    async with served(app, body_seconds=0.2) as address:
        heard = await Caller(address, POST + b"Content-Length: 10\r\n\r\n{").heard()

    assert heard.startswith(b"HTTP/1.1 408 ")
    assert b"the body did not arrive within 0.2 s" in heard


async def test_a_body_that_is_not_read_does_not_hold_a_connection(
    app: Trax, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "MOMENT_SECONDS", 0.0)
    stream = HALF_A_HEAD.replace(b"/health/live", b"/api/v1/events")
    said = stream + SIGNED + b"Content-Length: 10\r\n\r\n"

    async with served(app, body_seconds=0.2) as address:
        assert b"200 OK" in await Caller(address, said).heard()


async def test_a_connection_whose_client_reads_no_response_is_closed(
    app: Trax, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def endless(scope: Any, receive: Any, send: Any) -> None:
        del receive
        if scope["path"] == "/health/live":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while True:
                await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
                await asyncio.sleep(0)

    web = create(app, access=access())
    monkeypatch.setattr(web, "middleware_stack", endless)

    def build(*_: Any, **__: Any) -> Any:
        return web

    monkeypatch.setattr(serve, "create", build)
    async with served(app, send_seconds=0.2) as address:
        caller = Caller(address, HEAD)
        await asyncio.to_thread(until, lambda: "its response took too long" in caplog.text)
        caller.close()


@pytest.mark.parametrize(("size", "end"), [(2000, b""), (200_000, b""), (6000, b"\r\n\r\n")])
async def test_a_head_that_is_too_large_is_refused_however_it_arrives(
    app: Trax, size: int, end: bytes
) -> None:
    async with served(app, head_bytes=1024) as address:
        heard = await Caller(address, HALF_A_HEAD + b"X: " + b"x" * size + end).heard()

    assert heard.startswith(b"HTTP/1.1 400 ")


async def test_a_body_that_is_too_large_is_refused_also_where_it_is_mounted(app: Trax) -> None:
    web = create(app, access=access(), limits=WebLimits(body_bytes=100))
    async with browser(web, token=OPERATOR, base=BASE) as client:
        answer = await client.patch("/api/v1/settings", content=b"x" * 101)

    assert answer.status_code == 413
    assert answer.json()["detail"] == "the body is larger than the limit of 100 bytes"


class SlowBody:
    """A body in pieces, the last of which is held back until it may end; counts what was taken."""

    def __init__(self, *pieces: bytes) -> None:
        self.taken = 0
        self.may_end = asyncio.Event()
        self._pieces = pieces

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        for piece in self._pieces:
            self.taken += len(piece)
            yield piece
        await self.may_end.wait()


@pytest.mark.parametrize("path", ["/login", "/logout"])
async def test_an_unauthenticated_body_is_read_up_to_16_kb(app: Trax, path: str) -> None:
    web, body = create(app, access=access()), SlowBody(*[b"x" * 4096] * 250)
    async with browser(web) as nobody:
        answer = await nobody.post(path, content=body)
        declared = await nobody.post(path, content=b"x" * 17_000)

    assert (answer.status_code, declared.status_code) == (413, 413)
    assert body.taken <= 20_480
    assert web.state.context.bodies.total == 0


async def test_many_bodies_together_stay_within_their_budget_and_leave_half_to_those_who_are_known(
    app: Trax,
) -> None:
    web = create(app, access=access(), limits=WebLimits(all_bodies_bytes=100_000))
    bodies = [SlowBody(b"x" * 10_000) for _ in range(30)]
    budget = web.state.context.bodies
    async with browser(web) as nobody, browser(web, token=OPERATOR) as known:
        posts = [asyncio.create_task(nobody.post("/login", content=body)) for body in bodies]
        refused: set[asyncio.Task[httpx2.Response]] = set()
        while len(refused) < 25:  # the other five wait for their end
            done, _ = await asyncio.wait(set(posts) - refused, return_when=asyncio.FIRST_COMPLETED)
            refused |= done
        held = budget.total
        change = await known.patch("/api/v1/settings", json={"max_active_jobs": 7})
        for body in bodies:
            body.may_end.set()
        answers = await asyncio.gather(*posts)

    assert (held, change.status_code) == (50_000, 200)
    assert [answer.status_code for answer in answers].count(503) == 25
    assert {task.result().headers["retry-after"] for task in refused} == {"1"}
    assert budget.total == 0


def test_unauthenticated_requests_cannot_use_up_half_of_the_body_budget() -> None:
    limits = WebLimits()

    assert limits.connections * limits.login_body_bytes <= limits.all_bodies_bytes // 2


async def test_a_visitor_is_served_though_all_connections_read_no_responses(
    app: Trax, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = create(app, access=access())
    answer_others = web.build_middleware_stack()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != "/endless":
            await answer_others(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
            await asyncio.sleep(0)

    def build(*_: Any, **__: Any) -> Any:
        return web

    monkeypatch.setattr(web, "middleware_stack", endless)
    monkeypatch.setattr(serve, "create", build)
    monkeypatch.setattr(serve, "FULL_SHARE", 0.0)
    async with served(app, connections=4, send_seconds=600) as address:
        deaf = [Caller(address, HEAD.replace(b"/health/live", b"/endless")) for _ in range(12)]

        visitor = Caller(address, HEAD)

        assert b"200 OK" in await visitor.answer()
        for one in (*deaf, visitor):
            one.close()


async def test_a_visitor_gets_in_though_all_connections_have_asked_for_much_at_once(app: Trax) -> None:
    async with served(app, connections=4, idle_seconds=600) as address:
        many = [Caller(address, 500 * HEAD) for _ in range(8)]

        visitor = Caller(address, HEAD)

        assert b"200 OK" in await visitor.answer()
        answers = [(await each.heard()).count(b"200 OK") for each in many]
        visitor.close()
    assert sum(answers) < 8 * 500


async def test_a_visitor_gets_in_though_all_connections_are_half_open(
    app: Trax, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(serve, "FULL_SHARE", 0.0)
    half = HALF_A_HEAD, POST + b"Content-Length: 10\r\n\r\n{"
    async with served(app, connections=4, head_seconds=600, body_seconds=600) as address:
        idle = [Caller(address, half[number % 2]) for number in range(12)]

        visitor = Caller(address, HEAD)

        assert b"200 OK" in await visitor.answer()
        for one in (*idle, visitor):
            one.close()
    assert "dashboard: all 4 connections are in use" in caplog.text


async def test_a_failed_accept_is_logged_once_and_retried(
    app: Trax, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(serve, "ACCEPT_SECONDS", 0.0)
    failures = iter(range(50))
    accept = socket.socket.accept

    def refuse(self: socket.socket) -> Any:
        if next(failures, None) is not None:
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", refuse)
    async with served(app) as address:
        caller = Caller(address, HEAD)
        assert b"200 OK" in await caller.answer()
        caller.close()

    lines = [line for line in caplog.messages if "cannot accept connections" in line]
    assert lines == ["dashboard: cannot accept connections: [Errno 24] Too many open files; retrying"]


async def test_many_invalid_requests_are_one_line_in_the_log(
    app: Trax, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(app) as address:
        heard = [await Caller(address, b"nonsense\r\n\r\n").heard() for _ in range(20)]

    assert {one.split(b"\r\n")[0] for one in heard} == {b"HTTP/1.1 400 Bad Request"}
    assert caplog.messages == ["Invalid HTTP request received."]


async def test_a_client_that_disconnects_within_a_body_is_not_logged(
    app: Trax, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(app) as address:
        caller = Caller(address, POST + b"Content-Length: 10\r\n\r\n{")
        caller.close()
        async with httpx2.AsyncClient(base_url=f"http://{address[0]}:{address[1]}", timeout=60) as client:
            answer = await client.get("/health/live")

    assert answer.status_code == 200
    assert caplog.messages == []


async def test_the_end_waits_for_no_request_that_has_not_arrived(
    app: Trax, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(serve, "LAST_SECONDS", 600)
    async with served(app) as address:
        caller = Caller(address, POST + b"Content-Length: 10\r\nExpect: 100-continue\r\n\r\n")
        assert await caller.answer() == b"HTTP/1.1 100 Continue\r\n\r\n"

    assert await caller.heard() == b""
    assert caplog.messages == []


def test_a_line_is_logged_once_in_a_while_with_the_number_of_those_that_were_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now, logger = [0.0], logging.getLogger("tests.limited")
    limit = LogLimit(every_seconds=30, clock=lambda: now[0])
    for moment in (0, 1, 29, 30, 31, 61):
        now[0] = moment
        limit.log(logger, logging.WARNING, "somebody came at %s", moment)
        limit.log(logger, logging.WARNING, "another kind")

    said = [line for line in caplog.messages if "somebody" in line]
    assert said == [
        "somebody came at 0",
        "somebody came at 30 (2 more like this were not logged)",
        "somebody came at 61 (1 more like this were not logged)",
    ]
    assert sum("another kind" in line for line in caplog.messages) == 3


def test_kinds_without_number_are_one_kind_in_the_end(caplog: pytest.LogCaptureFixture) -> None:
    limit, logger = LogLimit(clock=lambda: 0.0), logging.getLogger("tests.limited")
    for number in range(1000):
        limit.log(logger, logging.WARNING, f"visitor {number}")

    assert len(caplog.messages) == 101


def test_limits_come_from_the_environment() -> None:
    found = WebLimits.from_environment({"TRAX_WEB_CONNECTIONS": "7", "TRAX_WEB_HEAD_SECONDS": "500ms"})

    assert found == WebLimits(connections=7, head_seconds=0.5)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TRAX_WEB_CONNECTIONS", "many"),
        ("TRAX_WEB_CONNECTIONS", "0"),
        ("TRAX_WEB_CONNECTIONS", "1.5"),
        ("TRAX_WEB_BODY_SECONDS", "-1"),
        ("TRAX_WEB_BODY_SECONDS", "inf"),
        ("TRAX_WEB_BODY_SECONDS", "nan"),
    ],
)
def test_a_limit_that_cannot_be_kept_is_refused_with_its_value(variable: str, value: str) -> None:
    with pytest.raises(DefinitionError, match=r"must be a (number|whole number|duration) above 0.* \(got"):
        WebLimits.from_environment({variable: value})


@pytest.mark.parametrize(("files", "connections"), [(128, 32), (16, 8), (1_000_000, 1000)])
def test_connections_use_at_most_a_quarter_of_the_file_limit_of_the_process(
    monkeypatch: pytest.MonkeyPatch, files: int, connections: int
) -> None:

    def limit(_: int) -> tuple[int, int]:
        return files, files

    monkeypatch.setattr("resource.getrlimit", limit)

    found = WebLimits().for_process()

    assert (found.connections, found.event_streams) == (connections, min(500, connections // 2))
