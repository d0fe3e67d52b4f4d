"""`app.http_endpoint(…)`: the endpoint that `HttpWorkers` calls, an ASGI application to serve or mount.

take-up    claim runs by id; this side writes their records (mode "database")
offer      say whether this side can execute these trains
execute    run a train and stream its progress and outcome; no database is needed (mode "response")
run        the same for `app.run(…, on=…)`; this side writes the record
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
from trax.host.receiving import run_receiver
from trax.submitters.http_requests import BodyReader, EndpointRequest, load_body, runs_of
from trax.submitters.http_runs import StreamedRuns
from trax.submitters.signing import CallDenied, CallVerifier, keys_of

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
    """Executes registered trains for callers that know a secret: `secrets` is one, or several by key id.

    `concurrency` is how many runs it executes at once (default: as many as a worker). `path` is the path that
    callers use, if a proxy rewrites it: it is part of the signature. A body has at most `max_body_bytes` and
    arrives within `body_timeout`; at most `max_receiving` bodies arrive at once. Use it as an async context
    manager, or through the server's lifespan, so that active runs can finish at shutdown.
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
        self._keeper = CallVerifier(keys_of(secrets))
        self._concurrency = concurrency
        self._inbox = BodyReader(
            most_bytes=max_body_bytes, seconds=body_timeout.total_seconds(), most_at_once=max_receiving
        )
        self._log = LogLimit()
        self._path = path
        self._clock = clock
        self._runs = StreamedRuns(parts, concurrency)
        self._receiver: Receiver | None = None
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Wait for claimed runs, as long as a worker would, and return the rest to the queue."""
        self._receiver = None
        await self._stack.aclose()

    async def __call__(
        self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        match scope["type"]:
            case "lifespan":
                await self._lifespan(receive, send)
            case "http":
                await self._serve(EndpointRequest(scope, receive, send))
            case _:
                await send({"type": "websocket.close", "code": 1003})

    async def _lifespan(
        self, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await self.__aexit__()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, request: EndpointRequest) -> None:
        try:
            body = await load_body(request, self._keeper, self._inbox, path=self._path, clock=self._clock)
            await self._handle(request, body)
        except CallDenied as denied:
            text = f"HTTP endpoint: call of %s from %s rejected with {denied.status}: %s"
            self._log.log(logger, logging.WARNING, text, request.path, request.caller, denied.reason)
            after = [RETRY_SOON] if denied.status in {429, 503} else []
            await request.respond(denied.status, {"error": denied.reason}, *after)

    async def _handle(self, request: EndpointRequest, body: Mapping[str, Any]) -> None:
        match request.operation:
            case "take-up":
                await request.respond(202, {"answers": await self._claim_runs(runs_of(body))})
            case "offer":
                await request.respond(200, {"answers": [self._refusal(train) for _, train in runs_of(body)]})
            case "execute":
                await self._runs.execute(request, body)
            case "run":
                await self._runs.run(request, body)
            case unknown:
                raise CallDenied(404, f"unknown operation {unknown!r}")

    async def _claim_runs(self, runs: list[tuple[int, str]]) -> list[str | None]:
        try:
            receiver = await self._open_receiver()
            taken = await receiver.claim_by_ids([metadata_id for metadata_id, _ in runs])
        except StoreUnavailable as error:
            raise CallDenied(503, f"database unavailable: {error}") from error
        except TraxError as stopping:
            raise CallDenied(503, str(stopping)) from stopping
        # A run that had started before counts as handed over, too.
        return [f"{type(each).__name__}: {each}" if isinstance(each, TraxError) else None for each in taken]

    async def _open_receiver(self) -> Receiver:
        """The receiver that claims runs by id, opened at the first call."""
        async with self._opening:
            if self._receiver is None:
                opened = run_receiver(self._parts, concurrency=self._concurrency)
                self._receiver = await self._stack.enter_async_context(opened)
            return self._receiver

    def _refusal(self, train: str) -> str | None:
        known = self._parts.trains
        return None if train in known else str(UnknownTrain(train, known.names_and_aliases))
