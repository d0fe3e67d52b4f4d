"""`HttpEndpoint`: execute runs for HTTP callers; also without a database, as a stream of events."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict

from trax.errors import StoreUnavailable, TraxError, UnknownTrain, format_value
from trax.remote.http.protocol import outcome_line, outcome_of
from trax.remote.http.requests import (
    BodyReader,
    EndpointRequest,
    RunStream,
    facts_of,
    load_body,
    parent_of,
    runs_of,
    train_of,
)
from trax.remote.http.signing import CallDenied, CallVerifier, keys_of
from trax.remote.receiver import run_receiver
from trax.schedule.validate import AT_LEAST_ONE, CALLABLE_OR_NONE, SLOTS_OR_NONE, TEXT_OR_NONE, TIME_LIMIT
from trax.train import Done, Run, enter_run
from trax.worker.capture import LogLimit
from trax.worker.job_runner import hide_in_outcome
from trax.worker.recorded_run import RecordedRun, RemoteCaller

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from trax.remote.receiver import Receiver
    from trax.train import Outcome, Train
    from trax.worker.app_context import AppContext

logger = logging.getLogger(__name__)
MOST_BODY_BYTES: Final = 1_048_576

BODY_TIMEOUT: Final = timedelta(seconds=30)

MOST_RECEIVING: Final = 100

RETRY_SOON: Final = (b"retry-after", b"1")


class EndpointKeywords(TypedDict, total=False):
    """Options of `app.http_endpoint`; `HttpEndpoint` has their meaning."""

    concurrency: int | None
    max_body_bytes: int
    body_timeout: timedelta
    max_receiving: int
    path: str | None
    clock: Callable[[], float]


class HttpEndpoint:
    """Executes registered trains for callers that know a secret: `secrets` is one, or several by key id.

    `concurrency` is how many runs it executes at once (default: as many as a worker). `path` is the path that
    callers use, if a proxy rewrites it: it is part of the signature. A body has at most `max_body_bytes` and
    arrives within `body_timeout`; at most `max_receiving` bodies arrive at once. Use it as an async context
    manager, or through the server's lifespan, so that active runs can finish at shutdown.
    """

    def __init__(
        self,
        context: AppContext,
        secrets: str | Mapping[str, str],
        *,
        concurrency: int | None = None,
        max_body_bytes: int = MOST_BODY_BYTES,
        body_timeout: timedelta = BODY_TIMEOUT,
        max_receiving: int = MOST_RECEIVING,
        path: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        SLOTS_OR_NONE("concurrency", concurrency)
        AT_LEAST_ONE("max_body_bytes", max_body_bytes)
        AT_LEAST_ONE("max_receiving", max_receiving)
        TIME_LIMIT("body_timeout", body_timeout)
        TEXT_OR_NONE("path", path)
        CALLABLE_OR_NONE("clock", clock)
        self._context = context
        self._keeper = CallVerifier(keys_of(secrets))
        self._concurrency = concurrency
        self._inbox = BodyReader(
            most_bytes=max_body_bytes, seconds=body_timeout.total_seconds(), most_at_once=max_receiving
        )
        self._log = LogLimit()
        self._path = path
        self._clock = clock
        self._runs = StreamedRuns(context, concurrency)
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
            path, caller = request.visible_path, request.visible_caller
            text = f"HTTP endpoint: call of %s from %s rejected with {denied.status}: %s"
            self._log.log(logger, logging.WARNING, text, path, caller, denied.reason)
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
                raise CallDenied(404, f"unknown operation {format_value(unknown)}")

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
                opened = run_receiver(self._context, concurrency=self._concurrency)
                self._receiver = await self._stack.enter_async_context(opened)
            return self._receiver

    def _refusal(self, train: str) -> str | None:
        known = self._context.trains
        return None if train in known else str(UnknownTrain(train, known.names_and_aliases))


class StreamedRuns:
    """Streamed runs, limited to `concurrency` at once; further ones wait, with their callers."""

    def __init__(self, context: AppContext, concurrency: int | None) -> None:
        self._context = context
        self._slots = asyncio.Semaphore(concurrency or context.slots)

    async def execute(self, request: EndpointRequest, body: Mapping[str, Any]) -> None:
        """Run a train; the caller keeps the record."""
        train, facts = self._train(body), facts_of(body)

        async def work(value: Any, telling: RunStream) -> Outcome[Any]:
            run = Run(
                **facts,
                cancellation=telling.token,
                activator=NoActivator(),
                reporter=telling.progress,
                secret_words=self._context.parameters.input_codec(train).secret_words(value),
            )
            with enter_run(run), telling.capture_logs():
                return await train.attempt(
                    value,
                    cancellation=telling.token,
                    external_id=run.external_id,
                    on_junction=lambda junction: telling.put_event("junction", junction),
                )

        await self._stream(request, train, body.get("input"), work)

    async def run(self, request: EndpointRequest, body: Mapping[str, Any]) -> None:
        """Run a train and write its record here; the parent may be a run of the same database."""
        train, parent_id = self._train(body), parent_of(body)

        async def work(value: Any, telling: RunStream) -> Outcome[Any]:
            caller = RemoteCaller(parent_id, telling.token)
            recorded = RecordedRun(self._context, await self._context.store.open(), train, caller=caller)
            return Done(await recorded.run(value))

        await self._stream(request, train, body.get("input"), work)

    async def _stream(
        self,
        request: EndpointRequest,
        train: Train[Any, Any],
        value: Any,
        work: Callable[[Any, RunStream], Awaitable[Outcome[Any]]],
    ) -> None:
        telling = RunStream(request)

        async def last_line() -> bytes:
            words = frozenset[str]()
            async with self._slots:
                try:
                    codec = self._context.parameters.input_codec(train)
                    decoded = codec.decode(json.dumps(value))
                    words = codec.secret_words(decoded)
                    outcome = await work(decoded, telling)
                except Exception as error:  # noqa: BLE001 - sent to the caller as the outcome
                    outcome = outcome_of(error, train=train.name)
            outcome = hide_in_outcome(outcome, words)
            return outcome_line(
                outcome, lambda output: self._context.parameters.output_to_send(train, output)
            )

        await telling.stream(last_line())

    def _train(self, body: Mapping[str, Any]) -> Train[Any, Any]:
        try:
            return self._context.trains.get(train_of(body))
        except TraxError as error:
            raise CallDenied(404, str(error)) from error


class NoActivator:
    """An activator for processes without a database: it raises."""

    async def __call__(self, run: Run, wanted: list[tuple[str, Any]], /, *, force: bool) -> int:
        return self.activate_blocking(run, wanted, force=force)

    def activate_blocking(self, run: Run, wanted: list[tuple[str, Any]], /, *, force: bool) -> int:
        del wanted, force
        raise TraxError(
            f"train {run.train!r} activates dependents, but its process has no database; "
            'route it to HttpWorkers(…, mode="database")'
        )
