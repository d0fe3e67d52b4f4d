"""Server-sent events: tell open pages which data has changed.

One watcher polls the database for all open pages. It starts with the first page and stops after the last.
The more pages are open, the longer it batches changes, since each page then reads its data again.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from starlette.responses import Response

from trax.clock import is_set_within
from trax.errors import TraxError
from trax.records.status import ChangeTag
from trax.server.watch import ChangeWatcher
from trax.web.limits import WebLimits
from trax.web.problems import problem, problem_response

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.types import Receive, Scope, Send

    from trax.app.app import Trax
    from trax.web.problems import Problem

logger = logging.getLogger(__name__)
EVENTS_KEPT: Final = 200
HEARTBEAT_SECONDS: Final = 15.0
SLOW_SECONDS: Final = 30.0
"""A client that does not read for this long is disconnected; browsers reconnect by themselves."""
RETRY_SECONDS: Final = 30
"""Retry-After for clients above the limit."""
STREAM_SECONDS: Final = 600.0
"""How long a stream lasts at most, so that no server waits long for it on shutdown."""
RETRY_MILLISECONDS: Final = 2000
CALMEST_SECONDS: Final = 1.0
SECONDS_FOR_EACH: Final = 0.2
MAX_BATCH_SECONDS: Final = 10.0
RESTART_SECONDS: Final = 5.0
BEGIN_SECONDS: Final = 5.0
"""How long a new page waits for the watcher; after that, all tags are sent once it runs."""
LINGER_SECONDS: Final = 10.0
"""How long the watcher runs on without pages: a client that changes pages is soon back."""


class Subscriber:
    """One open page, and the tags it has not received yet."""

    def __init__(self, pending: frozenset[ChangeTag], visitor: str = "") -> None:
        self.visitor = visitor
        """Name of the client, for the limit per client."""
        self._pending: set[ChangeTag] = set(pending)
        self._wake = asyncio.Event()
        if pending:
            self._wake.set()

    def notify(self, tags: frozenset[ChangeTag]) -> None:
        self._pending |= tags
        self._wake.set()

    async def next_tags(self, seconds: float) -> list[ChangeTag]:
        """Wait for changed tags; an empty list if there are none within `seconds`."""
        if not await is_set_within(self._wake, seconds):
            return []
        self._wake.clear()
        tags, self._pending = sorted(self._pending), set[ChangeTag]()
        return tags


class Fanout:
    """Sends what one watcher notices to all open pages, and keeps recent events for reconnecting clients."""

    def __init__(self, app: Trax, limits: WebLimits | None = None) -> None:
        self._app = app
        self._limits = limits or WebLimits()
        self._subscribers: set[Subscriber] = set()
        self._task: asyncio.Task[None] | None = None
        self._resting: asyncio.TimerHandle | None = None
        self._origin = uuid4().hex[:8]
        self._number = 0
        self._recent: deque[tuple[int, frozenset[ChangeTag]]] = deque(maxlen=EVENTS_KEPT)
        self._is_closed = False
        self._is_ready = asyncio.Event()
        self._has_missed = False

    @property
    def last_event_id(self) -> str:
        """Id of the latest event; a client that reconnects with it misses nothing."""
        return f"{self._origin}-{self._number}"

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def is_watching(self) -> bool:
        """Whether the watcher runs, so that any change from now on is noticed."""
        return self._is_ready.is_set()

    @property
    def has_subscribers(self) -> bool:
        return bool(self._subscribers)

    def refusal(self, visitor: str) -> Problem | None:
        """Why this client may not open another stream; None if it may."""
        if len(self._subscribers) >= self._limits.event_streams:
            detail = f"the limit of {self._limits.event_streams} open event streams is reached"
            return problem(
                503, detail, code="too_many_viewers", hint="try again later; pages work without live updates"
            )
        theirs = sum(viewer.visitor == visitor for viewer in self._subscribers)
        if theirs >= self._limits.event_streams_per_visitor:
            detail = f"the limit of {theirs} open event streams per client is reached"
            return problem(429, detail, code="too_many_viewers", hint="close some pages and try again")
        return None

    @asynccontextmanager
    async def subscribe(self, last_seen: str | None, visitor: str = "") -> AsyncGenerator[Subscriber]:
        self._cancel_stop()
        viewer = Subscriber(self._tags_since(last_seen), visitor)
        self._subscribers.add(viewer)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(self._is_ready), name="trax watching")
        try:
            await self._wait_until_watching()
            yield viewer
        finally:
            self._subscribers.discard(viewer)
            if not self._subscribers:
                self._resting = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._stop_watching)

    async def _wait_until_watching(self) -> None:
        """Wait for the watcher's first read: changes before it would be missed."""
        if not await is_set_within(self._is_ready, BEGIN_SECONDS):
            self._has_missed = True

    async def close(self) -> None:
        """End all streams, because the server stops."""
        self._is_closed = True
        for viewer in self._subscribers:
            viewer.notify(frozenset())
        task = self._task
        self._stop_watching()
        if task is not None:
            await asyncio.wait([task])

    def _stop_watching(self) -> None:
        """Stop the watcher: no page is open. A client that reconnects later receives all tags."""
        self._cancel_stop()
        task, self._task = self._task, None
        self._is_ready.set()  # release clients that still wait for the start
        self._is_ready, self._has_missed = asyncio.Event(), False
        self._origin = uuid4().hex[:8]
        if task is not None:
            task.cancel()

    def _cancel_stop(self) -> None:
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None

    def _tags_since(self, last_seen: str | None) -> frozenset[ChangeTag]:
        """The tags since the last event a client has seen; all tags if that event is no longer kept."""
        if last_seen is None:
            return frozenset()
        origin, _, number = last_seen.rpartition("-")
        oldest = self._recent[0][0] if self._recent else self._number + 1
        is_known = origin == self._origin and number.isascii() and number.isdigit()
        if not is_known or int(number) < oldest - 1:
            return frozenset(ChangeTag)
        return frozenset[ChangeTag]().union(*(tags for at, tags in self._recent if at > int(number)))

    async def _watch(self, is_ready: asyncio.Event) -> None:
        while True:
            try:
                await self._watch_changes(is_ready)
            except TraxError as error:
                logger.warning("event stream: cannot watch for changes: %s; retrying", error)
            except Exception:
                logger.exception("event stream: watching for changes failed; retrying")
            is_ready.clear()
            self._has_missed = True
            await asyncio.sleep(RESTART_SECONDS)

    async def _watch_changes(self, is_ready: asyncio.Event) -> None:
        watching = await ChangeWatcher.start(self._app.context, has_listener=self._app.is_running)
        is_ready.set()
        try:
            if self._has_missed:
                self._has_missed = False
                self._publish(frozenset(ChangeTag))
            while True:
                self._publish(await watching.next_change())
                await asyncio.sleep(self._batch_seconds())
        finally:
            await watching.end()

    def _publish(self, tags: frozenset[ChangeTag]) -> None:
        self._number += 1
        self._recent.append((self._number, tags))
        for viewer in self._subscribers:
            viewer.notify(tags)

    def _batch_seconds(self) -> float:
        return min(MAX_BATCH_SECONDS, max(CALMEST_SECONDS, SECONDS_FOR_EACH * len(self._subscribers)))


class EventStream(Response):
    """The response to one open page. It ends when the client leaves or stops reading, or the server stops."""

    media_type = "text/event-stream"

    def __init__(self, fanout: Fanout, last_seen: str | None, visitor: str = "") -> None:
        super().__init__(headers={"X-Accel-Buffering": "no", "Cache-Control": "no-store"})
        del self.headers["content-length"]
        self._fanout = fanout
        self._last_seen = last_seen
        self._visitor = visitor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        disconnect = asyncio.create_task(_wait_for_disconnect(receive))
        stream = asyncio.create_task(self._stream(scope, receive, send))
        try:
            await asyncio.wait({disconnect, stream}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (disconnect, stream):
                task.cancel()
            await asyncio.wait({disconnect, stream})
        if not stream.cancelled() and (error := stream.exception()) and not isinstance(error, TimeoutError):
            raise error

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        if refusal := self._fanout.refusal(self._visitor):  # no await between this check and the registration
            await problem_response(refusal, {"Retry-After": str(RETRY_SECONDS)})(scope, receive, send)
            return
        async with self._fanout.subscribe(self._last_seen, self._visitor) as viewer:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            ends_at = asyncio.get_running_loop().time() + STREAM_SECONDS
            first_id = self._last_seen or self._fanout.last_event_id  # pending tags have not been sent yet
            await _send_text(send, f"retry: {RETRY_MILLISECONDS}\n{_format_event('hello', first_id, [])}")
            while not self._fanout.is_closed and asyncio.get_running_loop().time() < ends_at:
                tags = await viewer.next_tags(HEARTBEAT_SECONDS)
                await _send_text(
                    send,
                    _format_event("change", self._fanout.last_event_id, tags) if tags else ": keep-alive\n\n",
                )
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def _format_event(name: str, event_id: str, tags: list[ChangeTag]) -> str:
    return f"id: {event_id}\nevent: {name}\ndata: {json.dumps({'tags': tags})}\n\n"


async def _send_text(send: Send, text: str) -> None:
    async with asyncio.timeout(SLOW_SECONDS):
        await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
