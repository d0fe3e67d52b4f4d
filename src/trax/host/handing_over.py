"""Hand runs over to a submitter: claim them from the outbox, call it, record the results."""

from __future__ import annotations

import asyncio
import logging
import traceback
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from trax.admin.hand_off import SubmissionResults, record_submission_results
from trax.dispatch.calling import SubmitCall
from trax.dispatch.submit import Refused, Submission, SubmissionResult, Submitter, batch_size_of, timeout_of
from trax.errors import SecretUnreadable
from trax.host.loop import Loop
from trax.store import hand_off
from trax.store.hand_off import FailedHandOff

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from trax.host.parts import Parts
    from trax.store import Connection, Store
    from trax.store.hand_off import OutboxRun

logger = logging.getLogger(__name__)

GRACE: Final = timedelta(seconds=30)
"""How much longer than its call a run stays reserved, so that the result can be recorded."""


class HandOver:
    """Calls one submitter, with a limit on concurrent calls.

    One instance a submitter: a slow or hanging one delays neither the others nor the workers.
    """

    def __init__(
        self,
        parts: Parts,
        store: Store,
        submitter: Submitter,
        on_call_done: Callable[[], None] = lambda: None,
    ) -> None:
        self._parts = parts
        self._store = store
        self._submitter = submitter
        self._notify_call_done = on_call_done
        self._calls: set[asyncio.Task[None]] = set()

    async def turn(self) -> int:
        """Start calls up to the limit; return how many runs they hand over."""
        free = self._parts.settings.max_concurrent_dispatch - len(self._calls)
        if free <= 0:
            return 0
        size = batch_size_of(self._submitter)
        taken, until = await self._store.call(self._claim_runs, free * size)
        for start in range(0, len(taken), size):
            self._start_call(taken[start : start + size], until)
        return len(taken)

    async def drain(self, seconds: float | None = None) -> None:
        """Wait for the active calls. One that takes too long is cancelled; its runs are handed over again."""
        if self._calls:
            await asyncio.wait(self._calls, timeout=seconds)
        for task in self._calls:
            task.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    def _start_call(self, batch: Sequence[OutboxRun], until: datetime) -> None:
        task = asyncio.create_task(
            self._call_submitter(batch, until), name=f"trax hand over to {self._submitter.name}"
        )
        self._calls.add(task)
        task.add_done_callback(self._on_call_done)

    def _on_call_done(self, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        self._notify_call_done()

    async def _call_submitter(self, batch: Sequence[OutboxRun], until: datetime) -> None:
        answers = {run.metadata_id: self._validate_input(run) for run in batch}
        fit = [Submission(**run._asdict()) for run in batch if answers[run.metadata_id] is None]
        call = SubmitCall(self._submitter, fit) if fit else None
        if call is not None:
            results = await call.results(self._seconds)
            answers |= {run.metadata_id: result for run, result in zip(fit, results, strict=True)}
        try:
            await self._store.call(self._record_results, answers, until)
        except Exception:
            logger.exception(
                "submitter %r: its results could not be recorded; runs %s will be handed over again",
                self._submitter.name,
                list(answers),
                extra={"submitter": self._submitter.name},
            )
        if call is not None:
            await call.wait_until_done()

    @property
    def _seconds(self) -> float | None:
        allowed = timeout_of(self._submitter, self._parts.settings.hand_off_timeout)
        return None if allowed is None else allowed.total_seconds()

    def _validate_input(self, run: OutboxRun) -> SubmissionResult:
        """An invalid input is not sent. Without the train's code here, the receiver validates it."""
        if run.train not in self._parts.trains:
            return None
        try:
            codec = self._parts.parameters.input_codec(self._parts.trains.get(run.train))
            codec.decode(run.input or "null")
        except SecretUnreadable:
            return None  # only the process that executes it needs the key
        except Exception as error:  # noqa: BLE001 - validators are user code
            return error
        return None

    def _claim_runs(self, connection: Connection, limit: int) -> tuple[list[OutboxRun], datetime]:
        now = self._store.now(connection)
        until = now + (timeout_of(self._submitter, self._parts.settings.hand_off_timeout) or GRACE) + GRACE
        name = self._submitter.name
        return hand_off.reserve(connection, submitter=name, limit=limit, until=until, now=now), until

    def _record_results(
        self, connection: Connection, results: dict[int, SubmissionResult], until: datetime
    ) -> None:
        failed = [_build_failure(run_id, answer) for run_id, answer in results.items() if answer is not None]
        for run in failed:
            name = self._submitter.name
            extra = {"metadata_id": run.metadata_id, "submitter": name}
            logger.warning(
                "run %s was not accepted by submitter %r: %s",
                run.metadata_id,
                name,
                run.failure_reason,
                extra=extra,
            )
        accepted = [run_id for run_id, answer in results.items() if answer is None]
        submission_results = SubmissionResults(accepted=accepted, failed=failed, deadline=until)
        record_submission_results(
            connection, submission_results, self._parts.settings, now=self._store.now(connection)
        )


def build_hand_over(parts: Parts, store: Store, submitter: Submitter) -> tuple[HandOver, Loop]:
    """Build the hand-over to one submitter and its loop. The end of a call wakes the loop."""

    async def turn() -> None:
        await hand_over.turn()

    def poll_seconds() -> float:
        return parts.settings.job_dispatcher_polling_interval.total_seconds()

    loop = Loop(f"hand_over to {submitter.name}", turn, poll_seconds=poll_seconds)
    hand_over = HandOver(parts, store, submitter, on_call_done=loop.wake)
    return hand_over, loop


def _build_failure(metadata_id: int, result: Refused | Exception) -> FailedHandOff:
    if isinstance(result, Refused):
        return FailedHandOff(metadata_id, Refused.__name__, result.reason)
    trace = "".join(traceback.format_exception(result))
    return FailedHandOff(metadata_id, type(result).__name__, _message(result), trace)


def _message(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not prevent recording the failure
        return f"<{type(error).__name__} without a readable message>"
