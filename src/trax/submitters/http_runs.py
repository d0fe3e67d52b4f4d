"""Runs that a caller listens to: with a record of the caller's, or with one that is written here."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from trax.errors import TraxError
from trax.host.outcomes import hide_in_outcome
from trax.host.recorded import Caller, RecordedRun
from trax.submitters.http_streams import Telling
from trax.submitters.signing import Denied
from trax.submitters.telling import ending_line, outcome_of
from trax.train import Done, Run, entered

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from trax.host.parts import Parts
    from trax.submitters.http_requests import Request
    from trax.train import Outcome, Train


class ListenedRuns:
    """So many at once; who comes too many waits in line, and its caller with it."""

    def __init__(self, parts: Parts, concurrency: int | None) -> None:
        self._parts = parts
        self._slots = asyncio.Semaphore(
            concurrency or parts.settings.local_worker_count or os.cpu_count() or 1
        )

    async def execute(self, request: Request, body: Mapping[str, Any]) -> None:
        """Run a train whose record is kept by the caller."""
        facts = _facts(body)

        async def work(train: Train[Any, Any], value: Any, telling: Telling) -> Outcome[Any]:
            run = Run(
                **facts,
                cancellation=telling.token,
                activator=NoDependents(),
                reporter=telling.progress,
                secret_words=self._parts.parameters.of_input(train).secret_words(value),
            )
            with entered(run), telling.hearing_logs():
                return await train.attempt(
                    value,
                    cancellation=telling.token,
                    external_id=run.external_id,
                    on_junction=lambda junction: telling.say("junction", junction),
                )

        await self._told(request, body, work)

    async def run(self, request: Request, body: Mapping[str, Any]) -> None:
        """Run a train and write its record here; its caller may be a run of the same database."""
        parent_id = cast("int | None", body.get("parent_id"))

        async def work(train: Train[Any, Any], value: Any, telling: Telling) -> Outcome[Any]:
            caller = Caller(parent_id, telling.token)
            recorded = RecordedRun(self._parts, await self._parts.store.opened(), train, caller=caller)
            return Done(await recorded.of(value))

        await self._told(request, body, work)

    async def _told(
        self,
        request: Request,
        body: Mapping[str, Any],
        work: Callable[[Train[Any, Any], Any, Telling], Awaitable[Outcome[Any]]],
    ) -> None:
        train = self._train(body.get("train"))
        telling = Telling(request)

        async def last_line() -> bytes:
            words = frozenset[str]()
            async with self._slots:
                try:
                    codec = self._parts.parameters.of_input(train)
                    value = codec.decode(json.dumps(body.get("input")))
                    words = codec.secret_words(value)
                    outcome = await work(train, value, telling)
                except Exception as error:  # noqa: BLE001 - it is what the caller gets
                    outcome = outcome_of(error, train=train.name)
            outcome = hide_in_outcome(outcome, words)
            return ending_line(outcome, lambda value: self._parts.parameters.sent_output(train, value))

        await telling.tell(last_line())

    def _train(self, name: Any) -> Train[Any, Any]:
        try:
            return self._parts.trains.get(str(name))
        except TraxError as unknown:
            raise Denied(404, str(unknown)) from unknown


class NoDependents:
    """What stands in for the database where there is none."""

    async def __call__(self, run: Run, wanted: list[tuple[str, Any]], /, *, force: bool) -> int:
        return self.blocking(run, wanted, force=force)

    def blocking(self, run: Run, wanted: list[tuple[str, Any]], /, *, force: bool) -> int:
        del wanted, force
        raise TraxError(
            f"train {run.train!r} wakes dependents, and there is no database where it runs; "
            'route it to HttpWorkers(…, mode="database")'
        )


def _facts(body: Mapping[str, Any]) -> dict[str, Any]:
    facts = body.get("facts")
    if not isinstance(facts, dict):
        raise Denied(400, "the body says nothing of the run itself")
    known = cast("dict[str, Any]", facts)
    moment = known.get("scheduled_for")
    try:
        return {**known, "scheduled_for": None if moment is None else datetime.fromisoformat(moment)}
    except (TypeError, ValueError):
        raise Denied(400, "scheduled_for is not a moment") from None
