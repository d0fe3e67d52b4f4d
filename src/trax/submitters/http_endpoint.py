"""`app.http_endpoint(…)`: the far side of `HttpWorkers`, an ASGI application to serve or to mount anywhere.

take-up    take runs up by their ids; their records are written here (mode "database")
offer      say whether runs of these trains would be executed here
execute    run a train, and tell the caller how it goes and ends; no database is needed (mode "response")
run        the same for `app.run(…, on=…)`, with a record that is written here
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self

from trax.errors import StoreUnavailable, TraxError, UnknownTrain
from trax.host.log_limit import LogLimit
from trax.host.receiving import receiving
from trax.submitters.http_requests import Inbox, Request, load_body, runs_of
from trax.submitters.http_runs import ListenedRuns
from trax.submitters.signing import Denied, Doorkeeper, keys_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from trax.host.parts import Parts
    from trax.host.receiving import Receiver

logger = logging.getLogger(__name__)

MOST_BODY_BYTES: Final = 1_048_576
BODY_TIMEOUT: Final = timedelta(seconds=30)
MOST_RECEIVING: Final = 100
RETRY_SOON: Final = (b"retry-after", b"1")


class HttpEndpoint:
    """Executes registered trains for whoever knows a secret: `secrets` is one, or several by key id.

    `concurrency` is how many runs it executes at once (as many as a worker would). `path` is the path that
    callers see, where a proxy rewrites it: it is part of what they sign. A body may measure `max_body_bytes`
    and take `body_timeout` to arrive; at most `max_receiving` arrive at once. Use it as an async context
    manager, or let the server's lifespan do so, to have what runs end in good order.
    """

    def __init__(
        self,
        parts: Parts,
        secrets: str | Mapping[str, str],
        *,
        concurrency: int | None = None,
        max_body_bytes: int = MOST_BODY_BYTES,
        body_timeout: timedelta = BODY_TIMEOUT,
        max_receiving: int = MOST_RECEIVING,
        path: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._parts = parts
        self._keeper = Doorkeeper(keys_of(secrets))
        self._concurrency = concurrency
        self._inbox = Inbox(
            most_bytes=max_body_bytes, seconds=body_timeout.total_seconds(), most_at_once=max_receiving
        )
        self._log = LogLimit()
        self._path = path
        self._clock = clock
        self._runs = ListenedRuns(parts, concurrency)
        self._receiver: Receiver | None = None
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Let what was taken up end, for as long as a worker would, and put back the rest."""
        self._receiver = None
        await self._stack.aclose()

    async def __call__(
        self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        match scope["type"]:
            case "lifespan":
                await self._live(receive, send)
            case "http":
                await self._serve(Request(scope, receive, send))
            case _:
                await send({"type": "websocket.close", "code": 1003})

    async def _live(
        self, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await self.__aexit__()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, request: Request) -> None:
        try:
            body = await load_body(request, self._keeper, self._inbox, path=self._path, clock=self._clock)
            await self._answer(request, body)
        except Denied as denied:
            text = f"a call of %s from %s was refused with {denied.status}: %s"
            self._log.log(logger, logging.WARNING, text, request.path, request.caller, denied.reason)
            after = [RETRY_SOON] if denied.status in {429, 503} else []
            await request.answer(denied.status, {"error": denied.reason}, *after)

    async def _answer(self, request: Request, body: Mapping[str, Any]) -> None:
        match request.operation:
            case "take-up":
                await request.answer(202, {"answers": await self._taken_up(runs_of(body))})
            case "offer":
                await request.answer(200, {"answers": [self._refusal(train) for _, train in runs_of(body)]})
            case "execute":
                await self._runs.execute(request, body)
            case "run":
                await self._runs.run(request, body)
            case unknown:
                raise Denied(404, f"there is no operation {unknown!r}")

    async def _taken_up(self, runs: list[tuple[int, str]]) -> list[str | None]:
        try:
            receiver = await self._received()
            taken = await receiver.take_up_all([metadata_id for metadata_id, _ in runs])
        except StoreUnavailable as away:
            raise Denied(503, f"the database is not there: {away}") from away
        except TraxError as stopping:
            raise Denied(503, str(stopping)) from stopping
        # One that was begun before was handed over as well as any other.
        return [f"{type(one).__name__}: {one}" if isinstance(one, TraxError) else None for one in taken]

    async def _received(self) -> Receiver:
        """A worker that takes up what it is handed, from the first call on."""
        async with self._opening:
            if self._receiver is None:
                opened = receiving(self._parts, concurrency=self._concurrency)
                self._receiver = await self._stack.enter_async_context(opened)
            return self._receiver

    def _refusal(self, train: str) -> str | None:
        known = self._parts.trains
        return None if train in known else str(UnknownTrain(train, known.names_and_aliases))
