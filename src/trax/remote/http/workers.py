"""`HttpWorkers`: run jobs in processes that serve `app.http_endpoint(…)`."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from trax.clock import format_duration
from trax.engine.parameters import UnreadableOutput
from trax.engine.submitter import Refused
from trax.errors import (
    DefinitionError,
    EndpointUnreachable,
    InvalidInput,
    RemoteLost,
    RunCancelled,
    RunInterrupted,
    RunTimedOut,
    TraxError,
    format_value,
)
from trax.remote.http.client import MAX_LINE_BYTES, CallRetry, EndpointClient
from trax.remote.http.protocol import parse_event, parse_line, parse_outcome
from trax.remote.http.signing import DEFAULT_KEY, secret_bytes, validate_key
from trax.schedule.validate import AT_LEAST_ONE
from trax.train import Cancelled, Failed, Interrupted, output_codec
from trax.train.context import await_cancellable
from trax.train.outcome import describe
from trax.worker.job_runner import RUN_FIELDS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from trax.engine.submitter import Submission, SubmissionResult
    from trax.remote.receiver import Receiver
    from trax.train import Cancellation, Codec, Outcome, Run, Train
    from trax.worker.messages import RequestHandlers

logger = logging.getLogger(__name__)
MODES: Final = ("database", "response")
RELAYED: Final = ("progress", "junction", "log")
"""What an endpoint may report of a run. Other events are ignored: they are of a newer or a hostile one."""


class HttpWorkers:
    """Submits runs to the endpoint at `url`, which has the same `secret`.

    With mode "database" the endpoint has access to the database: it claims the runs, responds at once, and
    writes their records. With mode "response" it has only the code: the call lasts as long as the run, and
    this side keeps record, slot and heartbeat.

    `timeout` is for one call, which `retry` may repeat. `concurrency` is how many runs are active at once in
    mode "response"; `run_timeout` is for `app.run(…, on=…)` of trains without a timeout. `max_line_bytes`
    limits a line of a response, and so an output. Other arguments go to the `httpx2.AsyncClient`: verify,
    cert, proxy, headers, transport.
    """

    def __init__(
        self,
        url: str,
        secret: str,
        *,
        name: str = "http",
        mode: Literal["database", "response"] = "database",
        key: str = DEFAULT_KEY,
        timeout: timedelta = timedelta(seconds=30),
        retry: CallRetry | None = None,
        batch_size: int = 20,
        concurrency: int = 100,
        run_timeout: timedelta = timedelta(minutes=5),
        max_line_bytes: int = MAX_LINE_BYTES,
        **client: Any,
    ) -> None:
        if mode not in MODES:
            raise DefinitionError(f"mode must be {' or '.join(map(repr, MODES))} (got {format_value(mode)})")
        AT_LEAST_ONE("max_line_bytes", max_line_bytes)
        call_retry = retry or CallRetry()
        self.name = name
        self.mode = mode
        self.batch_size = batch_size
        self.timeout = timeout * (call_retry.max_retries + 1) + call_retry.total_delay
        self._concurrency = concurrency
        self._run_timeout = run_timeout
        self._receiver: Receiver | None = None
        self._endpoint = EndpointClient(
            url=url,
            key=validate_key(key),
            secret=secret_bytes(secret),
            timeout=timeout,
            retry=call_retry,
            options=client,
            max_line_bytes=max_line_bytes,
        )

    def __repr__(self) -> str:
        return f"HttpWorkers({self._endpoint.address!r}, name={self.name!r}, mode={self.mode!r})"

    @property
    def keeps_records(self) -> bool:
        """Whether the endpoint writes the records of its runs."""
        return self.mode == "database"

    @asynccontextmanager
    async def lifespan(self, receiver: Callable[..., Any]) -> AsyncGenerator[Receiver | None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._endpoint.open())
            if not self.keeps_records:
                receiver_context = receiver(concurrency=self._concurrency, executor=self)
                self._receiver = await stack.enter_async_context(receiver_context)
            try:
                yield self._receiver
            finally:
                self._receiver = None

    async def submit(self, batch: Sequence[Submission]) -> list[SubmissionResult]:
        """Offer the runs, or have them claimed; returns a result for each."""
        operation = "take-up" if self.keeps_records else "offer"
        runs = [{"metadata_id": run.metadata_id, "train": run.train} for run in batch]
        answer = await self._endpoint.post(operation, json.dumps({"runs": runs}).encode())
        if not answer.is_success:
            return [Refused(answer.description)] * len(batch)
        answers = _parse_results(answer.text, len(batch))
        if answers is None:
            return [Refused(f"invalid response: {answer.description}")] * len(batch)
        if self.keeps_records:
            return answers
        if self._receiver is None:
            raise TraxError(f"submitter {self.name!r} is not open; a server opens it at start")
        wanted = [run.metadata_id for run, answer in zip(batch, answers, strict=True) if answer is None]
        claimed = iter(await self._receiver.claim_by_ids(wanted) if wanted else ())
        return [_refusal(next(claimed)) if answer is None else answer for answer in answers]

    async def attempt(
        self, train: Train[Any, Any], text: str, run: Run, handlers: RequestHandlers
    ) -> Outcome[Any]:
        """Execute a run at the endpoint and stream it until it ends; cancelling disconnects."""
        facts = {name: getattr(run, name) for name in RUN_FIELDS}
        body = _request_body(text, train=train.name, facts=facts)
        outcome = self._stream_outcome(
            "execute", body, train, run.external_id, handlers, decode=_decode_output_if_readable
        )
        try:
            return await await_cancellable(run.cancellation, outcome)
        except RunCancelled as error:
            return Cancelled(str(error), isinstance(error, RunTimedOut), error=error)
        except (RunInterrupted, EndpointUnreachable) as error:
            return Interrupted(str(error), error=error)
        except TraxError as error:
            names = {"train": train.name, "external_id": run.external_id}
            return Failed(error, describe(error, **names, junction=None))

    async def run(
        self, train: Train[Any, Any], text: str, parent_id: int | None, token: Cancellation
    ) -> Outcome[Any]:
        """Run a train at the endpoint, which writes the record, and wait for it."""
        body = _request_body(text, train=train.name, parent_id=parent_id)
        allowed = train.options.timeout or self._run_timeout
        try:
            async with asyncio.timeout(allowed.total_seconds()):
                return await await_cancellable(
                    token, self._stream_outcome("run", body, train, "", {}, decode=_decode_output)
                )
        except RunTimedOut:
            raise
        except TimeoutError:
            return Cancelled(
                f"timed out: {self._endpoint.address} took longer than {format_duration(allowed)}",
                timed_out=True,
            )

    async def _stream_outcome(
        self,
        operation: str,
        body: bytes,
        train: Train[Any, Any],
        external_id: str,
        handlers: RequestHandlers,
        *,
        decode: Callable[[Train[Any, Any], str], Any],
    ) -> Outcome[Any]:
        async with self._endpoint.stream(operation, body) as lines:
            async for line in lines:
                try:
                    message = parse_line(line)
                    outcome = parse_outcome(
                        message, lambda text: decode(train, text), train=train.name, external_id=external_id
                    )
                    events = {what: parse_event(what, message[what]) for what in RELAYED if what in message}
                except InvalidInput:  # the output, which `decode` cannot read
                    raise
                except ValueError as error:
                    raise TraxError(f"{self._endpoint.address} sent an invalid line: {error}") from error
                if outcome is not None:
                    return outcome
                await _relay_events(events, handlers)
        raise RemoteLost(f"{self._endpoint.address} ended its response before the run ended")


def _refusal(taken: bool | TraxError) -> SubmissionResult:  # noqa: FBT001
    return taken if isinstance(taken, TraxError) else None


async def _relay_events(events: Mapping[str, list[Any]], handlers: RequestHandlers) -> None:
    """Pass log lines and progress on, where somebody wants them."""
    for what, arguments in events.items():
        if what in handlers:
            done = handlers[what](*arguments)
            if inspect.isawaitable(done):
                await done


def _request_body(text: str, **facts: Any) -> bytes:
    """The request body, with the input spliced in as JSON text, to avoid parsing it."""
    head = json.dumps(facts, default=str, separators=(",", ":"))
    return f'{head[:-1]},"input":{text}}}'.encode()


def _parse_results(text: str, count: int) -> list[SubmissionResult] | None:
    """The endpoint's result for each run; None if the response is invalid."""
    try:
        results = parse_line(text).get("answers")
    except ValueError:
        return None
    if not isinstance(results, list) or len(cast("list[Any]", results)) != count:
        return None
    return [None if each is None else Refused(str(each)) for each in cast("list[Any]", results)]


@cache
def _codec(train: Train[Any, Any]) -> Codec[Any] | None:
    try:
        return output_codec(train)
    except DefinitionError:
        return None


def _decode_output(train: Train[Any, Any], text: str) -> Any:
    codec = _codec(train)
    return None if codec is None else codec.decode(text)


def _decode_output_if_readable(train: Train[Any, Any], text: str) -> Any:
    """Decode the output; the record gets the reason if this code cannot read it. The run still succeeded."""
    try:
        return _decode_output(train, text)
    except InvalidInput as error:
        logger.warning("train %r: output not saved: %s", train.name, error, extra={"train": train.name})
        return UnreadableOutput(error)
