"""`HttpWorkers`: have trains executed by processes that answer HTTP, with `app.http_endpoint(…)`."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from trax.dispatch.submit import Refused
from trax.errors import (
    DefinitionError,
    InvalidInput,
    RemoteLost,
    RunCancelled,
    RunInterrupted,
    RunTimedOut,
    TraxError,
    shown,
)
from trax.host.job import FACTS
from trax.submitters.http_client import FarEndpoint, Unreached
from trax.submitters.retrying import Patience
from trax.submitters.signing import DEFAULT_KEY, checked_key, secret_bytes
from trax.submitters.telling import log_told, outcome_told
from trax.train import Cancelled, Failed, Interrupted, output_codec
from trax.train.cancellation import held
from trax.train.failure import describe

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from trax.dispatch.submit import Answer, Submission
    from trax.host.receiving import Receiver
    from trax.train import Cancellation, Codec, Outcome, Run, Train
    from trax.work.messages import Desk

logger = logging.getLogger(__name__)

MODES: Final = ("database", "response")


class HttpWorkers:
    """Hands runs to the endpoint at `url`, which knows the same `secret`.

    With mode "database" the far side has the database too: it takes the runs up, answers at once, and keeps
    their records. With mode "response" it has only the code: the call lasts as long as the run, and its
    record, its slot and its heartbeat are kept here.

    `timeout` is for one call, which `retry` may repeat. `concurrency` is how many runs are under way at once
    in mode "response"; `run_timeout` is for `app.run(…, on=…)` of trains that have none of their own. What
    else is given goes to the `httpx2.AsyncClient`: verify, cert, proxy, headers, transport.
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
        retry: Patience | None = None,
        batch_size: int = 20,
        concurrency: int = 100,
        run_timeout: timedelta = timedelta(minutes=5),
        **client: Any,
    ) -> None:
        if mode not in MODES:
            raise DefinitionError(f"mode is {' or '.join(map(repr, MODES))} (got {shown(mode)})")
        patience = retry or Patience()
        self.name = name
        self.mode = mode
        self.batch_size = batch_size
        self.timeout = timeout * (patience.max_retries + 1) + patience.longest
        self._concurrency = concurrency
        self._run_timeout = run_timeout
        self._receiver: Receiver | None = None
        self._far = FarEndpoint(
            url=url,
            key=checked_key(key),
            secret=secret_bytes(secret),
            timeout=timeout,
            patience=patience,
            options=client,
        )

    def __repr__(self) -> str:
        return f"HttpWorkers({self._far.address!r}, name={self.name!r}, mode={self.mode!r})"

    @property
    def keeps_records(self) -> bool:
        """Whether the far side writes the record of what it runs."""
        return self.mode == "database"

    @asynccontextmanager
    async def opened(self, receiving: Callable[..., Any]) -> AsyncGenerator[Receiver | None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._far.opened())
            if not self.keeps_records:
                far_side = receiving(concurrency=self._concurrency, far=self)
                self._receiver = await stack.enter_async_context(far_side)
            try:
                yield self._receiver
            finally:
                self._receiver = None

    async def submit(self, batch: Sequence[Submission]) -> list[Answer]:
        """Offer the runs, or have them taken up; then it is said of each whether it was."""
        operation = "take-up" if self.keeps_records else "offer"
        runs = [{"metadata_id": run.metadata_id, "train": run.train} for run in batch]
        answer = await self._far.post(operation, json.dumps({"runs": runs}).encode())
        if not answer.is_success:
            return [Refused(answer.description)] * len(batch)
        answers = _answers(answer.text, len(batch))
        if answers is None:
            return [Refused(f"not understood: {answer.description}")] * len(batch)
        if self.keeps_records:
            return answers
        if self._receiver is None:
            raise TraxError(f"submitter {self.name!r} was not opened; a server does that when it starts")
        wanted = [run.metadata_id for run, answer in zip(batch, answers, strict=True) if answer is None]
        taken = iter(await self._receiver.take_up_all(wanted) if wanted else ())
        return [_refusal(next(taken)) if answer is None else answer for answer in answers]

    async def attempt(self, train: Train[Any, Any], text: str, run: Run, desk: Desk) -> Outcome[Any]:
        """Have a run executed there, and listen until it is over; a wish to stop it hangs up."""
        facts = {name: getattr(run, name) for name in FACTS}
        body = _call(text, train=train.name, facts=facts)
        told = self._told("execute", body, train, run.external_id, desk, read=_kept)
        try:
            return await held(run.cancellation, told)
        except RunCancelled as error:
            return Cancelled(str(error), isinstance(error, RunTimedOut), error=error)
        except (RunInterrupted, Unreached) as error:
            return Interrupted(str(error), error=error)
        except TraxError as error:
            names = {"train": train.name, "external_id": run.external_id}
            return Failed(error, describe(error, **names, junction=None))

    async def run(
        self, train: Train[Any, Any], text: str, parent_id: int | None, token: Cancellation
    ) -> Outcome[Any]:
        """Run a train there, recorded there, and wait for it."""
        body = _call(text, train=train.name, parent_id=parent_id)
        allowed = train.options.timeout or self._run_timeout
        try:
            async with asyncio.timeout(allowed.total_seconds()):
                return await held(token, self._told("run", body, train, "", {}, read=_required))
        except TimeoutError:
            return Cancelled(f"timed out: {self._far.address} took longer than {allowed}", timed_out=True)

    async def _told(
        self,
        operation: str,
        body: bytes,
        train: Train[Any, Any],
        external_id: str,
        desk: Desk,
        *,
        read: Callable[[Train[Any, Any], str], Any],
    ) -> Outcome[Any]:
        async with self._far.stream(operation, body) as lines:
            async for line in lines:
                told = _parsed(line)
                outcome = outcome_told(
                    told, lambda said: read(train, said), train=train.name, external_id=external_id
                )
                if outcome is not None:
                    return outcome
                await _heard(told, desk)
        raise RemoteLost(f"{self._far.address} ended its answer before the run was over")


def _refusal(taken: bool | TraxError) -> Answer:  # noqa: FBT001
    return taken if isinstance(taken, TraxError) else None


async def _heard(told: Mapping[str, Any], desk: Desk) -> None:
    """What a run says of itself before its end. Words of a newer far side that we do not know are let be."""
    for what, value in told.items():
        if what not in desk:
            continue
        done = desk[what](*_arguments(what, value))
        if inspect.isawaitable(done):
            await done


def _arguments(what: str, value: Any) -> list[Any]:
    if what == "log":
        return [log_told(value)]
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _call(text: str, **facts: Any) -> bytes:
    """The input is spliced in as it is: nobody reads it on the way."""
    head = json.dumps(facts, default=str, separators=(",", ":"))
    return f'{head[:-1]},"input":{text}}}'.encode()


def _answers(text: str, wanted: int) -> list[Answer] | None:
    """What the far side said of each run; None when that cannot be understood."""
    said = _parsed(text).get("answers")
    if not isinstance(said, list) or len(cast("list[Any]", said)) != wanted:
        return None
    return [None if one is None else Refused(str(one)) for one in cast("list[Any]", said)]


def _parsed(text: str | bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


@cache
def _codec(train: Train[Any, Any]) -> Codec[Any] | None:
    try:
        return output_codec(train)
    except DefinitionError:
        return None


def _required(train: Train[Any, Any], text: str) -> Any:
    codec = _codec(train)
    return None if codec is None else codec.decode(text)


def _kept(train: Train[Any, Any], text: str) -> Any:
    """An output that our code cannot read has been made all the same: the run was a success."""
    try:
        return _required(train, text)
    except InvalidInput as refused:
        logger.warning("%s; the output is not saved", refused, extra={"train": train.name})
        return None
