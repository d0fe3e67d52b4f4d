"""Streams of changes for open pages, without polling the database per page."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from tests.support.waiting import until
from tests.support.web_app import OPERATOR, VIEWER, access, railway

from trax.records.status import ChangeTag
from trax.server import watch
from trax.web import WebLimits, events
from trax.web.events import Fanout, Subscriber
from trax.web.serve import ListenAddress, WebListener

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from pathlib import Path

    from trax import Trax

PROGRAM = {"Authorization": f"Bearer {OPERATOR}"}


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(events, "CALMEST_SECONDS", 0.01)
    monkeypatch.setattr(events, "SECONDS_FOR_EACH", 0.0)


@pytest.fixture
async def app(url: str) -> AsyncGenerator[Trax]:
    app = railway(url)
    yield app
    app.close()


@asynccontextmanager
async def served(app: Trax) -> AsyncGenerator[httpx2.AsyncClient]:
    async with (
        WebListener(ListenAddress(0), access()).serve(app) as address,
        httpx2.AsyncClient(base_url=address, headers=PROGRAM, timeout=30) as client,
    ):
        yield client


class Stream:
    """What a browser hears on one connection."""

    def __init__(self, answer: httpx2.Response) -> None:
        self.headers = answer.headers
        self._lines: AsyncIterator[str] = answer.aiter_lines()

    async def next(self) -> dict[str, str]:
        """The next event, whatever comments stand before it."""
        found: dict[str, str] = {}
        async for line in self._lines:
            name, _, value = line.partition(": ")
            if line and name:
                found[name] = value
            elif "event" in found:
                return found
        raise AssertionError("the stream has ended")

    async def until(self, tag: str) -> dict[str, Any]:
        while True:
            event = await self.next()
            if tag in json.loads(event["data"])["tags"]:
                return event


@asynccontextmanager
async def stream(client: httpx2.AsyncClient, **headers: str) -> AsyncGenerator[Stream]:
    async with client.stream("GET", "/api/v1/events", headers=headers) as answer:
        yield Stream(answer)


async def test_a_page_is_notified_of_a_change_in_this_process(app: Trax) -> None:
    async with served(app) as client, stream(client) as heard:
        hello = await heard.next()
        await app.queue("serve_coffee", {"customer": "Eve"})

        event = await heard.until("queue")

    assert heard.headers["content-type"].startswith("text/event-stream")
    assert (hello["event"], hello["retry"], event["event"]) == ("hello", "2000", "change")


async def test_a_page_is_notified_of_a_change_in_another_process(postgres_url: str) -> None:
    await _hears_the_other(postgres_url)


async def test_a_page_is_notified_of_an_unannounced_change_in_another_process(tmp_path: Path) -> None:
    await _hears_the_other(f"sqlite:///{tmp_path}/trax.db")


@pytest.fixture
def may_look(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Nobody has looked for changes before this is set."""
    allowed, look = asyncio.Event(), watch.ChangeWatcher.check

    async def held_back(self: watch.ChangeWatcher) -> frozenset[ChangeTag]:
        await allowed.wait()
        return await look(self)

    monkeypatch.setattr(watch.ChangeWatcher, "check", held_back)
    return allowed


async def test_a_stream_begins_after_the_watch_for_changes_has_started(
    app: Trax, may_look: asyncio.Event
) -> None:
    fanout = Fanout(app)
    coming = fanout.subscribe(None)
    greeting = asyncio.create_task(coming.__aenter__())
    await asyncio.sleep(0)

    assert fanout.has_subscribers
    assert not greeting.done()
    may_look.set()
    await greeting
    assert fanout.is_watching
    await coming.__aexit__(None, None, None)
    await fanout.close()


async def test_a_stream_started_without_a_watch_reports_that_anything_may_have_changed(
    app: Trax, may_look: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "BEGIN_SECONDS", 0.0)
    fanout = Fanout(app)

    async with fanout.subscribe(None) as viewer:
        assert not fanout.is_watching
        may_look.set()
        assert await viewer.next_tags(30) == sorted(ChangeTag)
    await fanout.close()


async def _hears_the_other(url: str) -> None:
    app, other = railway(url), railway(url)
    async with served(app) as client, stream(client) as heard:
        await heard.next()
        await other.settings.update(max_active_jobs=3)

        await heard.until("settings")
    for one in (app, other):
        one.close()


async def test_a_reconnected_stream_gets_the_missed_changes(app: Trax) -> None:
    async with served(app) as client, stream(client) as staying:
        await staying.next()
        async with stream(client) as leaving:
            mark = (await leaving.next())["id"]
        await app.queue("serve_coffee", {"customer": "Eve"})
        await staying.until("queue")

        async with stream(client, **{"Last-Event-ID": mark}) as back:
            assert (await back.next())["id"] == mark
            missed = json.loads((await back.next())["data"])["tags"]

    assert "queue" in missed


async def test_a_stream_with_an_unknown_id_reports_that_anything_may_have_changed(app: Trax) -> None:
    async with served(app) as client, stream(client, **{"Last-Event-ID": "before-7"}) as back:
        await back.next()
        told = json.loads((await back.next())["data"])["tags"]

    assert told == sorted(ChangeTag)


async def test_many_pages_share_one_watcher(app: Trax, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []
    begin = watch.ChangeWatcher.start.__func__  # pyright: ignore[reportFunctionMemberAccess]

    async def counted(cls: Any, *args: Any, **how: Any) -> Any:
        begun.append(cls)
        return await begin(cls, *args, **how)

    monkeypatch.setattr(watch.ChangeWatcher, "start", classmethod(counted))
    fanout = Fanout(app)
    async with fanout.subscribe(None) as one, fanout.subscribe(None) as other:
        await asyncio.sleep(0)
        await app.queue("serve_coffee", {"customer": "Eve"})
        told = [await viewer.next_tags(30) for viewer in (one, other)]

    await fanout.close()

    assert all(ChangeTag.QUEUE in tags for tags in told)
    assert len(begun) == 1


async def test_without_open_pages_the_database_is_not_polled(
    app: Trax, monkeypatch: pytest.MonkeyPatch
) -> None:
    fanout = Fanout(app)
    async with fanout.subscribe(None) as viewer:
        await app.queue("serve_coffee", {"customer": "Eve"})
        await viewer.next_tags(30)
    assert fanout.is_watching  # they may be on their way to the next page

    monkeypatch.setattr(events, "LINGER_SECONDS", 0.0)
    async with fanout.subscribe(None):
        pass
    await asyncio.to_thread(until, lambda: not fanout.is_watching)
    await fanout.close()


async def test_the_end_of_the_server_closes_all_streams(app: Trax) -> None:
    doorway = WebListener(ListenAddress(0), access())
    async with httpx2.AsyncClient(base_url=doorway.address, headers=PROGRAM, timeout=30) as client:
        async with doorway.serve(app):
            opened = await client.send(client.build_request("GET", "/api/v1/events"), stream=True)
            heard = Stream(opened)
            await heard.next()

        with pytest.raises(AssertionError, match="has ended"):
            await heard.until("nothing of this kind")


async def test_a_stream_whose_client_reads_nothing_is_closed(
    app: Trax, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "SLOW_SECONDS", 0.01)
    fanout = Fanout(app)
    stuck = asyncio.Event()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await stuck.wait()

    async def receive() -> Any:
        await stuck.wait()

    await asyncio.wait_for(events.EventStream(fanout, None)({}, receive, send), 30)

    assert not fanout.has_subscribers
    await fanout.close()


async def test_a_stream_beyond_the_limit_is_refused_with_retry_after(app: Trax) -> None:
    limits = WebLimits(event_streams=3, event_streams_per_visitor=2)
    viewer = {"Authorization": f"Bearer {VIEWER}"}
    doorway = WebListener(ListenAddress(0), access(), limits)
    async with (
        doorway.serve(app) as address,
        httpx2.AsyncClient(base_url=address, headers=PROGRAM, timeout=30) as client,
    ):
        async with stream(client), stream(client) as second:
            await second.next()
            third = await client.get("/api/v1/events")
            async with stream(client, **viewer) as other:
                await other.next()
                fourth = await client.get("/api/v1/events", headers=viewer)
        async with stream(client) as again:
            hello = await again.next()

    assert [(one.status_code, one.json()["code"]) for one in (third, fourth)] == [
        (429, "too_many_viewers"),
        (503, "too_many_viewers"),
    ]
    assert {one.headers["retry-after"] for one in (third, fourth)} == {"30"}
    assert hello["event"] == "hello"


async def test_unsent_changes_are_merged() -> None:
    viewer = Subscriber(frozenset())
    viewer.notify(frozenset({ChangeTag.QUEUE}))
    viewer.notify(frozenset({ChangeTag.EXECUTIONS, ChangeTag.QUEUE}))

    assert await viewer.next_tags(30) == [ChangeTag.EXECUTIONS, ChangeTag.QUEUE]
    assert await viewer.next_tags(0.001) == []
