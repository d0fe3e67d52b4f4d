"""Run trains for HTTP callers that stream them: operations `execute` and `run` of the endpoint."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from trax.errors import TraxError
from trax.host.outcomes import hide_in_outcome
from trax.host.recorded import RecordedRun, RemoteCaller
from trax.submitters.http_streams import RunStream
from trax.submitters.signing import CallDenied
from trax.submitters.telling import outcome_line, outcome_of
from trax.train import Done, Run, enter_run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from trax.host.parts import Parts
    from trax.submitters.http_requests import EndpointRequest
    from trax.train import Outcome, Train


class StreamedRuns:
    """Streamed runs, limited to `concurrency` at once; further ones wait, with their callers."""

    def __init__(self, parts: Parts, concurrency: int | None) -> None:
        self._parts = parts
        self._slots = asyncio.Semaphore(
            concurrency or parts.settings.local_worker_count or os.cpu_count() or 1
        )

    async def execute(self, request: EndpointRequest, body: Mapping[str, Any]) -> None:
        """Run a train; the caller keeps the record."""
        facts = _facts(body)

        async def work(train: Train[Any, Any], value: Any, telling: RunStream) -> Outcome[Any]:
            run = Run(
                **facts,
                cancellation=telling.token,
                activator=NoActivator(),
                reporter=telling.progress,
                secret_words=self._parts.parameters.input_codec(train).secret_words(value),
            )
            with enter_run(run), telling.capture_logs():
                return await train.attempt(
                    value,
                    cancellation=telling.token,
                    external_id=run.external_id,
                    on_junction=lambda junction: telling.put_event("junction", junction),
                )

        await self._stream(request, body, work)

    async def run(self, request: EndpointRequest, body: Mapping[str, Any]) -> None:
        """Run a train and write its record here; the parent may be a run of the same database."""
        parent_id = cast("int | None", body.get("parent_id"))

        async def work(train: Train[Any, Any], value: Any, telling: RunStream) -> Outcome[Any]:
            caller = RemoteCaller(parent_id, telling.token)
            recorded = RecordedRun(self._parts, await self._parts.store.open(), train, caller=caller)
            return Done(await recorded.run(value))

        await self._stream(request, body, work)

    async def _stream(
        self,
        request: EndpointRequest,
        body: Mapping[str, Any],
        work: Callable[[Train[Any, Any], Any, RunStream], Awaitable[Outcome[Any]]],
    ) -> None:
        train = self._train(body.get("train"))
        telling = RunStream(request)

        async def last_line() -> bytes:
            words = frozenset[str]()
            async with self._slots:
                try:
                    codec = self._parts.parameters.input_codec(train)
                    value = codec.decode(json.dumps(body.get("input")))
                    words = codec.secret_words(value)
                    outcome = await work(train, value, telling)
                except Exception as error:  # noqa: BLE001 - sent to the caller as the outcome
                    outcome = outcome_of(error, train=train.name)
            outcome = hide_in_outcome(outcome, words)
            return outcome_line(outcome, lambda value: self._parts.parameters.output_to_send(train, value))

        await telling.stream(last_line())

    def _train(self, name: Any) -> Train[Any, Any]:
        try:
            return self._parts.trains.get(str(name))
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


def _facts(body: Mapping[str, Any]) -> dict[str, Any]:
    facts = body.get("facts")
    if not isinstance(facts, dict):
        raise CallDenied(400, "the body has no facts about the run")
    known = cast("dict[str, Any]", facts)
    moment = known.get("scheduled_for")
    try:
        return {**known, "scheduled_for": None if moment is None else datetime.fromisoformat(moment)}
    except (TypeError, ValueError):
        raise CallDenied(400, "scheduled_for is not an ISO 8601 datetime") from None
