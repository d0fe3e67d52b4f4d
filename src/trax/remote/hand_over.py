"""Hand runs over to submitters: call them with a timeout, write the results, and withdraw cancelled runs."""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
from collections.abc import Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from trax.clock import format_duration
from trax.engine.submitter import (
    Refused,
    Submission,
    SubmissionResult,
    Submitter,
    batch_size_of,
    pause_after,
    timeout_of,
    validate_results,
)
from trax.errors import SecretUnreadable, count_times
from trax.events import Topic
from trax.store import dead_letters
from trax.store.announce import announce
from trax.store.faults import RowsRefused, savepoint
from trax.store.manifests import manifest_rows
from trax.store.runs import hand_over
from trax.store.runs.hand_over import FailedHandOver
from trax.worker.duties import Duty, Turn, interval_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trax.settings import Settings
    from trax.store import Connection, Store
    from trax.store.runs.hand_over import OutboxRun
    from trax.worker.app_context import AppContext
    from trax.worker.dispatcher import Turns

logger = logging.getLogger(__name__)
GRACE: Final = timedelta(seconds=30)
"""How much longer than its call a run stays reserved, so that the result can be recorded."""


class HandOver:
    """Calls one submitter, with a limit on concurrent calls; the end of a call requests the next turn.

    Each submitter has its own instance: a slow or hanging one delays neither the others nor the workers.
    """

    def __init__(
        self,
        context: AppContext,
        store: Store,
        submitter: Submitter,
        turns: Callable[[str], Turns] | None = None,
    ) -> None:
        self.name = f"hand_over to {submitter.name}"
        self._context = context
        self._store = store
        self._submitter = submitter
        self._turns = None if turns is None else turns(self.name)
        self._calls: set[asyncio.Task[None]] = set()

    async def turn(self) -> int:
        """Start calls up to the limit; return how many runs they hand over."""
        free = self._context.settings.max_concurrent_dispatch - len(self._calls)
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
        if self._turns is not None:
            self._turns.wake()

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
        allowed = timeout_of(self._submitter, self._context.settings.hand_over_timeout)
        return None if allowed is None else allowed.total_seconds()

    def _validate_input(self, run: OutboxRun) -> SubmissionResult:
        """An invalid input is not sent. Without the train's code here, the receiver validates it."""
        if run.train not in self._context.trains:
            return None
        try:
            codec = self._context.parameters.input_codec(self._context.trains.get(run.train))
            codec.decode(run.input or "null")
        except SecretUnreadable:
            return None  # only the process that executes it needs the key
        except Exception as error:  # noqa: BLE001 - validators are user code
            return error
        return None

    def _claim_runs(self, connection: Connection, limit: int) -> tuple[list[OutboxRun], datetime]:
        now = self._store.now(connection)
        until = now + (timeout_of(self._submitter, self._context.settings.hand_over_timeout) or GRACE) + GRACE
        name = self._submitter.name
        return hand_over.reserve(connection, submitter=name, limit=limit, until=until, now=now), until

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
            connection, submission_results, self._context.settings, now=self._store.now(connection)
        )


def hand_over_duty(context: AppContext, hand_over: HandOver) -> Duty:
    async def turn() -> Turn:
        return Turn(await hand_over.turn())

    return Duty(
        name=hand_over.name,
        turn=turn,
        poll_seconds=partial(interval_seconds, context, "job_dispatcher_polling"),
        stands_for=("hand_over",),
    )


def _build_failure(metadata_id: int, result: Refused | Exception) -> FailedHandOver:
    if isinstance(result, Refused):
        return FailedHandOver(metadata_id, Refused.__name__, result.reason)
    trace = "".join(traceback.format_exception(result))
    return FailedHandOver(metadata_id, type(result).__name__, _message(result), trace)


def _message(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not prevent recording the failure
        return f"<{type(error).__name__} without a readable message>"


class SubmitCall:
    """A call of a submitter; it starts when the object is created.

    Code that hangs cannot be stopped reliably, so there are two ways to wait: `results` returns at the
    timeout, and `wait_until_done` when the submitter has returned. Until then the call counts towards the
    limit on concurrent calls, so a submitter that hangs blocks only itself.
    """

    def __init__(self, submitter: Submitter, batch: Sequence[Submission]) -> None:
        self._submitter = submitter
        self._batch = batch
        begin = _start_task if inspect.iscoroutinefunction(submitter.submit) else _start_thread
        self._work: asyncio.Future[Any] = begin(submitter, batch)

    async def results(self, seconds: float | None) -> list[SubmissionResult]:
        try:
            await asyncio.wait([self._work], timeout=seconds)
        finally:
            is_late = not self._work.done()
            if is_late and isinstance(self._work, asyncio.Task):
                self._work.cancel()
        if is_late:
            return [TimeoutError(f"not handed over within {format_duration(seconds or 0)}")] * len(
                self._batch
            )
        return self._read_results()

    async def wait_until_done(self) -> None:
        if not self._work.done():
            await asyncio.wait([self._work])
        if not self._work.cancelled():
            self._work.exception()  # retrieve it, or asyncio logs "exception was never retrieved"

    def _read_results(self) -> list[SubmissionResult]:
        try:
            returned = self._work.result()
        except asyncio.CancelledError:
            return [RuntimeError("the submitter cancelled its own call")] * len(self._batch)
        except Exception as error:  # noqa: BLE001 - it is the result
            return [error] * len(self._batch)
        return validate_results(self._submitter.name, returned, self._batch)


def _start_task(submitter: Submitter, batch: Sequence[Submission]) -> asyncio.Future[Any]:
    async def call() -> Any:
        return await _await(submitter.submit(batch))

    return asyncio.create_task(call(), name=f"trax submit to {submitter.name}")


def _start_thread(submitter: Submitter, batch: Sequence[Submission]) -> asyncio.Future[Any]:
    """Call it in a new thread: a call that hangs must not block a thread in which trains run."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def work() -> None:
        try:
            returned: Any = submitter.submit(batch)
        except BaseException as error:  # noqa: BLE001 - it is the result, also SystemExit
            returned = [error if isinstance(error, Exception) else Refused(repr(error))] * len(batch)
        with suppress(RuntimeError):  # the event loop may be closed
            loop.call_soon_threadsafe(_set_result, future, returned)

    name = f"trax-submit-{submitter.name}"
    Thread(target=copy_context().run, args=(work,), name=name, daemon=True).start()
    return future


def _set_result(future: asyncio.Future[Any], returned: Any) -> None:
    if not future.done():
        future.set_result(returned)


async def _await(awaitable: Any) -> Any:
    return await awaitable


JUNCTION: Final = "dispatch_jobs"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionResults:
    """The runs a submitter accepted, and those it did not. `deadline` is that of the hand-over."""

    accepted: Sequence[int]
    failed: Sequence[FailedHandOver]
    deadline: datetime


def record_submission_results(
    connection: Connection, results: SubmissionResults, settings: Settings, *, now: datetime
) -> None:
    """Mark the accepted runs; put the entries of the others back, or give them up."""
    hand_over.mark_submitted(connection, results.accepted, now=now)
    if not results.failed:
        return
    failed = hand_over.fail(connection, results.failed, junction=JUNCTION, until=results.deadline, now=now)
    if not failed:
        return
    # The manager may have left these manifests without a next due time while their runs were active.
    manifest_rows.mark_due(
        connection, [run.manifest_id for run in failed if run.manifest_id is not None], now=now
    )
    entries = hand_over.entries_of(connection, (run.id for run in failed))
    errors = {run.metadata_id: f"{run.failure_exception}: {run.failure_reason}" for run in results.failed}
    entries = [entry for entry in entries if entry.metadata_id in errors]
    _put_back_or_give_up(connection, entries, errors, settings, now)
    announce(connection, Topic.WORK_QUEUE, Topic.MANIFEST)  # capacity is free, and entries are queued again


def _put_back_or_give_up(
    connection: Connection, entries: Sequence[Any], errors: dict[int, str], settings: Settings, now: datetime
) -> None:
    moments: dict[int, datetime] = {}
    given_up: list[Any] = []
    for entry in entries:
        pause = pause_after(
            entry.dispatch_attempts + 1,
            max_attempts=settings.max_dispatch_attempts,
            interval=settings.job_dispatcher_polling_interval,
            max_pause=settings.max_retry_delay,
        )
        if pause is None:
            given_up.append(entry)
        else:
            moments[entry.id] = now + pause
    _put_back(connection, moments)
    _give_up(connection, given_up, errors, settings, now)


def _put_back(connection: Connection, moments: dict[int, datetime]) -> None:
    """Return entries to the queue in one statement, or one by one if a newer entry replaced one."""
    if not moments:
        return
    try:
        with savepoint(connection):
            hand_over.put_back(connection, moments)
    except RowsRefused:
        for entry_id, moment in moments.items():
            _put_back_one(connection, entry_id, moment)


def _put_back_one(connection: Connection, entry_id: int, moment: datetime) -> None:
    try:
        with savepoint(connection):
            hand_over.put_back(connection, {entry_id: moment})
    except RowsRefused:
        logger.info(
            "entry %s was not handed over; a newer entry replaces it",
            entry_id,
            extra={"entry_id": entry_id},
        )
        hand_over.supersede(connection, [entry_id])


def _give_up(
    connection: Connection, entries: Sequence[Any], errors: dict[int, str], settings: Settings, now: datetime
) -> None:
    """Write dead letters; the manifest manager writes those of manifests. The entries do not change."""
    if not entries:
        return
    if settings.max_dispatch_attempts:
        hand_over.count_attempt(connection, [entry.id for entry in entries])
    reasons = {entry.id: _reason(entry.dispatch_attempts + 1, errors[entry.metadata_id]) for entry in entries}
    of_manifests = {
        entry.manifest_id: (reasons[entry.id], entry.metadata_id)
        for entry in entries
        if entry.manifest_id is not None
    }
    alone = [
        dead_letters.build_from_entry(entry, reasons[entry.id], retry_count=entry.dispatch_attempts + 1)
        for entry in entries
        if entry.manifest_id is None
    ]
    dead_letters.add(connection, alone, now=now)
    if of_manifests:
        hand_over.give_up_manifests(connection, of_manifests, now=now)


def _reason(attempts: int, error: str) -> str:
    return f"its hand-over failed {count_times(attempts)}; the last error was {error}; it never ran"


async def withdraw(
    store: Store, submitters: Iterable[Submitter], ids: Sequence[int], *, within: timedelta
) -> None:
    """Pass these cancelled runs to each submitter that has `withdraw` and was handed them.

    The runs have ended already, so a message that is still delivered has no effect, and a submitter that
    cannot be reached is only logged.
    """
    for submitter in submitters:
        if not ids or not hasattr(submitter, "withdraw"):
            continue
        runs = await store.ask(hand_over.load_withdrawable, ids, submitter.name)
        if runs:
            batch = [Submission(**run._asdict()) for run in runs]
            await _withdraw_batch(submitter, batch, within.total_seconds())


async def _withdraw_batch(submitter: Any, batch: Sequence[Submission], seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await asyncio.to_thread(submitter.withdraw, batch)
    except Exception as error:  # noqa: BLE001 - user code; nothing is lost
        text = "submitter %r: %s cancelled runs could not be withdrawn: %s"
        logger.info(text, submitter.name, len(batch), error)
