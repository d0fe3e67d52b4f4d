"""What has changed, told to everybody who has a page open: server-sent events.

One watcher asks the database for all of them. It begins with the first viewer and ends with the last, and the
more there are, the longer it gathers before it tells: each of them reads the page again.
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
from trax.host.watching import Watching
from trax.records.pulse import Tag
from trax.web.limits import WebLimits
from trax.web.problems import as_json, problem

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.types import Receive, Scope, Send

    from trax.host.app import Trax
    from trax.web.problems import Problem

logger = logging.getLogger(__name__)

REMEMBERED: Final = 200
HEARTBEAT_SECONDS: Final = 15.0
SLOW_SECONDS: Final = 30.0
"""Who does not take a line for so long is let go; browsers come back by themselves."""
RETRY_SECONDS: Final = 30
"""When somebody who is one too many may try again."""
LONGEST_SECONDS: Final = 600.0
"""A server that wants to end need not wait for long, wherever we are mounted."""
RETRY_MILLISECONDS: Final = 2000
CALMEST_SECONDS: Final = 1.0
SECONDS_FOR_EACH: Final = 0.2
LONGEST_GATHERING: Final = 10.0
LOST_SECONDS: Final = 5.0
BEGIN_SECONDS: Final = 5.0
"""So long a page waits until changes are noticed; if it has to wait longer, anything may have changed."""
LINGER_SECONDS: Final = 10.0
"""Who goes from one page to the next is gone for a moment only."""


class Viewer:
    """What one open page has not been told yet."""

    def __init__(self, untold: frozenset[Tag], visitor: str = "") -> None:
        self.visitor = visitor
        """Whose page it is."""
        self._untold: set[Tag] = set(untold)
        self._woken = asyncio.Event()
        if untold:
            self._woken.set()

    def tell(self, tags: frozenset[Tag]) -> None:
        self._untold |= tags
        self._woken.set()

    async def news(self, seconds: float) -> list[Tag]:
        """What has changed, or nothing if that is so for so long."""
        if not await is_set_within(self._woken, seconds):
            return []
        self._woken.clear()
        told, self._untold = sorted(self._untold), set[Tag]()
        return told


class Fanout:
    """Tells all viewers what one watcher notices, and remembers a little for those who come back."""

    def __init__(self, app: Trax, limits: WebLimits | None = None) -> None:
        self._app = app
        self._limits = limits or WebLimits()
        self._viewers: set[Viewer] = set()
        self._task: asyncio.Task[None] | None = None
        self._resting: asyncio.TimerHandle | None = None
        self._origin = uuid4().hex[:8]
        self._number = 0
        self._told: deque[tuple[int, frozenset[Tag]]] = deque(maxlen=REMEMBERED)
        self._is_closed = False
        self._begun = asyncio.Event()
        self._has_missed = False

    @property
    def mark(self) -> str:
        """Where the news stand: who comes back with this misses nothing."""
        return f"{self._origin}-{self._number}"

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def is_watching(self) -> bool:
        """Whether whatever changes from now on will be noticed."""
        return self._begun.is_set()

    @property
    def has_viewers(self) -> bool:
        return bool(self._viewers)

    def refusal(self, visitor: str) -> Problem | None:
        """Why this visitor cannot have another page told of changes, if so."""
        if len(self._viewers) >= self._limits.event_streams:
            told = f"{self._limits.event_streams} pages are told of changes already"
            return problem(503, told, code="too_many_viewers", hint="try again later; pages work without it")
        theirs = sum(viewer.visitor == visitor for viewer in self._viewers)
        if theirs >= self._limits.event_streams_per_visitor:
            told = f"{theirs} of your pages are told of changes already"
            return problem(429, told, code="too_many_viewers", hint="close some of them, and try again")
        return None

    @asynccontextmanager
    async def viewer(self, last_seen: str | None, visitor: str = "") -> AsyncGenerator[Viewer]:
        self._stay()
        viewer = Viewer(self._missed(last_seen), visitor)
        self._viewers.add(viewer)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(self._begun), name="trax watching")
        try:
            await self._watching()
            yield viewer
        finally:
            self._viewers.discard(viewer)
            if not self._viewers:
                self._resting = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._rest)

    async def _watching(self) -> None:
        """What changes before the first look would be told to nobody: who is greeted, is greeted after it."""
        if not await is_set_within(self._begun, BEGIN_SECONDS):
            self._has_missed = True

    async def close(self) -> None:
        """Let all viewers go, because the server ends."""
        self._is_closed = True
        for viewer in self._viewers:
            viewer.tell(frozenset())
        task = self._task
        self._rest()
        if task is not None:
            await asyncio.wait([task])

    def _rest(self) -> None:
        """Nobody looks any more: whoever comes back later may have missed anything."""
        self._stay()
        task, self._task = self._task, None
        self._begun.set()  # nobody waits for what will not begin
        self._begun, self._has_missed = asyncio.Event(), False
        self._origin = uuid4().hex[:8]
        if task is not None:
            task.cancel()

    def _stay(self) -> None:
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None

    def _missed(self, last_seen: str | None) -> frozenset[Tag]:
        """What somebody has not heard who was here before; everything, when nobody remembers that far."""
        if last_seen is None:
            return frozenset()
        origin, _, number = last_seen.rpartition("-")
        oldest = self._told[0][0] if self._told else self._number + 1
        is_known = origin == self._origin and number.isascii() and number.isdigit()
        if not is_known or int(number) < oldest - 1:
            return frozenset(Tag)
        return frozenset[Tag]().union(*(tags for at, tags in self._told if at > int(number)))

    async def _watch(self, begun: asyncio.Event) -> None:
        while True:
            try:
                await self._watch_on(begun)
            except TraxError as error:
                logger.warning("nobody can be told what changes, trying again: %s", error)
            except Exception:
                logger.exception("watching failed, trying again")
            begun.clear()
            self._has_missed = True
            await asyncio.sleep(LOST_SECONDS)

    async def _watch_on(self, begun: asyncio.Event) -> None:
        watching = await Watching.begun(self._app.parts, has_ear=self._app.is_running)
        begun.set()
        try:
            if self._has_missed:
                self._has_missed = False
                self._tell(frozenset(Tag))
            while True:
                self._tell(await watching.next_change())
                await asyncio.sleep(self._gathering_seconds())
        finally:
            await watching.end()

    def _tell(self, tags: frozenset[Tag]) -> None:
        self._number += 1
        self._told.append((self._number, tags))
        for viewer in self._viewers:
            viewer.tell(tags)

    def _gathering_seconds(self) -> float:
        return min(LONGEST_GATHERING, max(CALMEST_SECONDS, SECONDS_FOR_EACH * len(self._viewers)))


class EventStream(Response):
    """One open page. It ends when the page is closed, takes nothing any more, or the server ends."""

    media_type = "text/event-stream"

    def __init__(self, fanout: Fanout, last_seen: str | None, visitor: str = "") -> None:
        super().__init__(headers={"X-Accel-Buffering": "no", "Cache-Control": "no-store"})
        del self.headers["content-length"]
        self._fanout = fanout
        self._last_seen = last_seen
        self._visitor = visitor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        left = asyncio.create_task(_left(receive))
        telling = asyncio.create_task(self._tell(scope, receive, send))
        try:
            await asyncio.wait({left, telling}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (left, telling):
                task.cancel()
            await asyncio.wait({left, telling})
        if not telling.cancelled() and (error := telling.exception()) and not isinstance(error, TimeoutError):
            raise error

    async def _tell(self, scope: Scope, receive: Receive, send: Send) -> None:
        if refusal := self._fanout.refusal(self._visitor):  # nobody else comes in before we are counted
            await as_json(refusal, {"Retry-After": str(RETRY_SECONDS)})(scope, receive, send)
            return
        async with self._fanout.viewer(self._last_seen, self._visitor) as viewer:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            ends_at = asyncio.get_running_loop().time() + LONGEST_SECONDS
            at_first = self._last_seen or self._fanout.mark  # until told, they know no more than before
            await _line(send, f"retry: {RETRY_MILLISECONDS}\n{_event('hello', at_first, [])}")
            while not self._fanout.is_closed and asyncio.get_running_loop().time() < ends_at:
                tags = await viewer.news(HEARTBEAT_SECONDS)
                await _line(send, _event("change", self._fanout.mark, tags) if tags else ": still here\n\n")
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def _event(name: str, mark: str, tags: list[Tag]) -> str:
    return f"id: {mark}\nevent: {name}\ndata: {json.dumps({'tags': tags})}\n\n"


async def _line(send: Send, text: str) -> None:
    async with asyncio.timeout(SLOW_SECONDS):
        await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
