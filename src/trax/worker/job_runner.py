"""Execute one claimed run, and convert its outcome into the result that is stored."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, assert_never, cast

from trax.engine.retry import full_class_name
from trax.errors import (
    RemoteFailure,
    RunTimedOut,
    SecretUnreadable,
    StoreError,
    TraxError,
    UnexpectedCancellation,
)
from trax.records.result import ResultKind, RunResult
from trax.records.states import CancelReason, State
from trax.train import Cancelled, Done, Failed, Interrupted, Outcome, RetryAfter, Train, set_current
from trax.train.outcome import describe
from trax.train.secrets import hide_words
from trax.worker.capture import nearest_logger
from trax.worker.hooks import HOOK_NAMES, HookTarget, hide_in_error
from trax.worker.messages import ExecuteRequest, reference_to
from trax.worker.results import FollowUp

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trax.store import Store
    from trax.store.runs.claim import Claimed, HeldRun
    from trax.train.run import Failure
    from trax.worker.active_run import ActiveRun, RunProgress
    from trax.worker.app_context import AppContext
    from trax.worker.messages import RequestHandlers
    from trax.worker.otel import RunSpan
    from trax.worker.processes import CpuProcessPool
    from trax.worker.recorded_run import RemoteExecutor
    from trax.worker.results import FollowUps

    Elsewhere: TypeAlias = Callable[[RequestHandlers], Awaitable[Outcome[Any]]]
    """Executes a run in another process; the handlers get its progress, log lines and activations."""

logger = logging.getLogger(__name__)
T = TypeVar("T")
OutcomeT = TypeVar("OutcomeT", bound="Outcome[Any]")
_new_result = cast("Any", tuple).__new__  # half the time of a call with 17 arguments
_SUCCESS: Final = (State.COMPLETED, ResultKind.SUCCESS)
_NO_FAILURE: Final = tuple(RunResult._field_defaults[name] for name in RunResult._fields[11:])


def success_result(
    job: Claimed | HeldRun,
    output: str | None,
    worker_id: int | None,
    junctions: str | None,
    began: float | None = None,
) -> RunResult:
    """The result of a run that completed with this output, as JSON text."""
    return _new_result(
        RunResult,
        (
            job.metadata_id,
            job.external_id,
            worker_id,
            *_SUCCESS,
            job.train,
            job.manifest_id,
            job.attempt,
            output,
            junctions,
            began,
            *_NO_FAILURE,
        ),
    )


def build_result(
    job: Claimed | HeldRun,
    outcome: Outcome[Any],
    train: Train[Any, Any],
    context: AppContext,
    *,
    worker_id: int | None,
    junctions: str | None = None,
    began: float | None = None,
) -> RunResult:
    """The result of a run with this outcome."""
    outcome = judge_timeout(outcome, job.external_id, train, context)
    if isinstance(outcome, Done):
        output = context.parameters.output_to_save(train, outcome.value)
        return success_result(job, output, worker_id=worker_id, junctions=junctions, began=began)
    result = partial(
        RunResult,
        job.metadata_id,
        job.external_id,
        worker_id,
        train=job.train,
        manifest_id=job.manifest_id,
        attempt=job.attempt,
        junctions=junctions,
        began=began,
    )
    match outcome:
        case Failed(error, failure):
            return result(
                State.FAILED,
                ResultKind.FAILURE,
                failure_junction=failure.junction,
                failure_exception=failure.type,
                failure_reason=failure.message,
                stack_trace=failure.stack_trace,
                raised=_class_names(error),
                gives_up=_gives_up(error, train),
                delay=error.delay if isinstance(error, RetryAfter) else None,
            )
        case Cancelled(reason):
            return result(
                State.CANCELLED, ResultKind.CANCELLED, failure_exception="Cancelled", failure_reason=reason
            )
        case Interrupted(reason, delay):
            name = "Interrupted" if delay is None else "Snooze"
            return result(
                State.CANCELLED,
                ResultKind.INTERRUPTED,
                failure_exception=name,
                failure_reason=reason,
                delay=delay,
            )
        case _:
            assert_never(outcome)


def judge_timeout(
    outcome: Outcome[T], external_id: str, train: Train[Any, Any], context: AppContext
) -> Outcome[T]:
    """A run that exceeded its timeout has failed, unless the setting says that it was cancelled."""
    if not isinstance(outcome, Cancelled):
        return outcome
    if not (outcome.timed_out and context.settings.timeout_counts_as_failure):
        return outcome
    error = outcome.error if isinstance(outcome.error, RunTimedOut) else RunTimedOut(outcome.reason)
    return Failed(error, describe(error, train=train.name, external_id=external_id, junction=None))


def _class_names(error: BaseException) -> tuple[str, ...]:
    """The qualified names of the error's classes, which a stored retry policy is matched against."""
    if isinstance(error, RemoteFailure):
        return error.raised
    return tuple(map(full_class_name, type(error).__mro__))


def _gives_up(error: BaseException, train: Train[Any, Any]) -> bool:
    """Whether the train's retry policy excludes retries after this error (`give_up_on`)."""
    retry = train.options.retry
    if retry is None:
        return False
    if isinstance(error, RemoteFailure):
        return any(full_class_name(each) in error.raised for each in retry.give_up_on)
    return isinstance(error, retry.give_up_on)


def hide_in_outcome(outcome: OutcomeT, secret_words: frozenset[str]) -> OutcomeT:
    """The same outcome with these words masked; the error that the caller gets is not changed."""
    if not secret_words:
        return outcome
    match outcome:
        case Failed(_, failure):
            masked = {
                name: hide_words(getattr(failure, name), secret_words) for name in ("message", "stack_trace")
            }
            return replace(outcome, failure=replace(failure, **masked))
        case Cancelled(reason) | Interrupted(reason):
            return replace(outcome, reason=hide_words(reason, secret_words))
        case _:
            return outcome


def task_cancelled(train: Train[Any, Any], run: RunProgress) -> Failed:
    """The outcome of a run whose task was cancelled by other code, without a request to cancel the run."""
    error = UnexpectedCancellation(
        "its task was cancelled by other code; nobody cancelled the run, so it counts as a failure"
    )
    return Failed(error, describe(error, train=train.name, external_id=run.external_id, junction=None))


async def execute_recorded(
    context: AppContext,
    store: Store,
    train: Train[Any, Any],
    run: RunProgress,
    value: Any,
    *,
    target: HookTarget,
    span: RunSpan | None,
    elsewhere: Elsewhere | None,
) -> Any:
    """Call the hooks for its start, then execute the run, here or in another process.

    Returns the output, or sets the run's `failure`, with secrets masked.
    """
    await context.hooks.call_start_hooks(store, target)
    observe = run.enter if context.settings.junction_progress else None
    if span is not None:
        observe = span.observer(train, observe, run.token, is_here=elsewhere is None)
    if elsewhere is None:
        output = await train.execute(run, value, observe)
    else:
        junction = observe or run.enter
        outcome = await elsewhere({"progress": run.report, "junction": junction, "log": handle_log_record})
        output, run.failure = (outcome.value, None) if isinstance(outcome, Done) else (None, outcome)
    if run.failure is not None:
        run.failure = hide_in_outcome(run.failure, run.secret_words)
    return output


RUN_FIELDS: Final = (
    "metadata_id",
    "external_id",
    "train",
    "manifest",
    "attempt",
    "parent_id",
    "scheduled_for",
)
"""Fields of the run that are passed to another process."""


class PreparedTrain:
    """What all runs of a train have in common in this process, under these settings."""

    def __init__(self, train: Train[Any, Any], context: AppContext, *, has_processes: bool) -> None:
        settings, steps = context.settings, train.plan.steps
        self.train = train
        self.settings = settings
        self.execute = train.execute if train.is_sync else train.steps
        self.reference = reference_to(train) if train.options.cpu and has_processes else None
        """Where another process finds the train, if its runs have a process of their own."""
        self.codec = context.parameters.input_codec(train)
        self.decode = self.codec.decode
        self.saves_whole_inputs = context.parameters.saves_whole_inputs
        self.output_to_save = context.parameters.output_saver(train)
        self.has_steps_to_observe = settings.junction_progress and len(steps) > 1
        self.only_junction = steps[0].name if settings.junction_progress and len(steps) == 1 else None
        has_hooks = any(getattr(train.options, name, None) for name in HOOK_NAMES)
        self.is_plain = not (train.options.cpu or self.codec.holds_secrets or has_hooks)
        """Whether a run is only the train itself, as long as the app has neither hooks nor a tracer."""


class JobRunner:
    """Executes claimed runs of one worker."""

    def __init__(
        self,
        context: AppContext,
        store: Store,
        worker_id: int,
        follow_ups: FollowUps,
        processes: Callable[[], CpuProcessPool] | None = None,
        executor: RemoteExecutor | None = None,
    ) -> None:
        self._context = context
        self._store = store
        self._worker_id = worker_id
        self._follow_ups = follow_ups
        self._processes = processes
        self._executor = executor
        self._prepared: dict[str, PreparedTrain] = {}

    async def execute(self, run: ActiveRun[Claimed]) -> RunResult:
        """Execute the run and return its result. The context must be the run's own."""
        job, context, run_log = run.job, self._context, self._context.run_log
        try:
            prepared = self._prepared.get(job.train)
            if prepared is None or prepared.settings is not context.live.current:
                prepared = self._prepare(job.train)
            is_plain = prepared.is_plain and context.telemetry.now is None and not context.hooks.has_any
            text = job.input or "null"
            value = prepared.decode(text) if is_plain else await self._read_input(run, prepared, text)
        except StoreError as error:
            return self.put_back_result(job, f"the secrets in its input could not be encrypted: {error}")
        except TraxError as error:
            return self._invalid_job_result(job, error)
        run.activator = context.activator
        set_current(run)
        run_log.open_run(self._store, run)
        if not prepared.saves_whole_inputs and job.input:
            self._replace_input(run)
        try:
            if is_plain:
                if prepared.only_junction is not None:
                    run.current = prepared.only_junction, run.began
                observe = run.enter if prepared.has_steps_to_observe else None
                output = await prepared.execute(run, value, observe)
            else:
                output = await self._execute_fully(run, prepared, value)
        except asyncio.CancelledError:
            output, run.failure = None, task_cancelled(prepared.train, run)
        finally:
            junctions = run_log.end_run(run)
            run_log.close_run(run)
        context.counters.count_run(prepared.train.name, perf_counter() - run.began, run.pickup_seconds)
        if run.failure is None:
            text = prepared.output_to_save(output)
            return success_result(job, text, self._worker_id, junctions, run.began)
        failure, run.failure = run.failure, None  # its traceback refers to the run
        return self._failure_result(run, failure, prepared.train, junctions)

    def _failure_result(
        self, run: ActiveRun[Claimed], failure: Failure, train: Train[Any, Any], junctions: str | None
    ) -> RunResult:
        outcome: Outcome[Any] = judge_timeout(failure, run.external_id, train, self._context)
        if isinstance(outcome, Failed):
            _log_failure(run.job, outcome)
        worker_id, began = self._worker_id, run.began
        return build_result(
            run.job, outcome, train, self._context, worker_id=worker_id, junctions=junctions, began=began
        )

    def _prepare(self, name: str) -> PreparedTrain:
        train = self._context.trains.get(name)
        prepared = PreparedTrain(train, self._context, has_processes=self._processes is not None)
        prepared.is_plain = prepared.is_plain and self._executor is None
        self._prepared[name] = prepared
        return prepared

    async def _read_input(self, run: ActiveRun[Claimed], prepared: PreparedTrain, text: str) -> Any:
        """Decode the input; encrypt secrets that were queued in plain text."""
        if prepared.codec.holds_secrets:
            run.job = await self._seal_input(run.job, prepared, text)
        try:
            return prepared.decode(text)
        except SecretUnreadable:
            if self._executor is None:
                raise
            return None  # only the process that executes it needs the key

    async def _seal_input(self, job: Claimed, prepared: PreparedTrain, text: str) -> Claimed:
        """The job with its input as it should have been stored; also in its record, entry and manifest."""
        sealed = prepared.codec.seal_plain(text, prepared.train.name)
        if sealed is None:
            return job
        from trax.store import secrets

        await self._store.call(secrets.seal_input, job.metadata_id, text, sealed)
        warning = "run %s of train %r: its input was queued with secrets in plain text; they are hidden now"
        logger.warning(warning, job.metadata_id, job.train, extra=_extra(job))
        return job._replace(input=sealed)

    def _replace_input(self, run: ActiveRun[Claimed]) -> None:
        text = run.job.input or "null"
        if (kept := self._context.parameters.input_to_save(text)) is not text:
            run.replaced_input = (kept,)

    async def _execute_fully(self, run: ActiveRun[Claimed], prepared: PreparedTrain, value: Any) -> Any:
        """The same with hooks, a span and secrets, here or in another process."""
        job, train, telemetry = run.job, prepared.train, self._context.telemetry.now
        run.secret_words = prepared.codec.secret_words(value)
        span = None if telemetry is None else telemetry.start_run(run.run, worker_id=self._worker_id)
        target, elsewhere = HookTarget(train, job.metadata_id, job.input), self._find_elsewhere(run, prepared)
        context, store, output = self._context, self._store, None
        try:
            output = await execute_recorded(
                context, store, train, run, value, target=target, span=span, elsewhere=elsewhere
            )
        except asyncio.CancelledError:
            run.failure = task_cancelled(train, run)
        outcome = judge_timeout(run.outcome(output), run.external_id, train, context)
        if span is not None:
            span.stop(outcome)
        self._add_follow_up(target, hide_in_error(outcome, run.secret_words), span)
        return output

    def _find_elsewhere(self, run: ActiveRun[Claimed], prepared: PreparedTrain) -> Elsewhere | None:
        """Where the run is executed, if not here."""
        text, executor, processes = run.job.input or "null", self._executor, self._processes

        def activate(wanted: list[tuple[str, Any]], force: bool) -> int:  # noqa: FBT001 - as in the message
            return self._context.activator.activate_blocking(run.run, wanted, force=force)

        def send(handlers: RequestHandlers) -> Awaitable[Outcome[Any]]:
            handlers = {**handlers, "activate": activate}
            if executor is not None:
                return executor.attempt(prepared.train, text, run.run, handlers)
            assert processes is not None  # noqa: S101 - there is a reference
            assert prepared.reference is not None  # noqa: S101 - checked below
            facts = {name: getattr(run.run, name) for name in RUN_FIELDS}
            work = ExecuteRequest(prepared.reference, text, facts, logging.getLogger().getEffectiveLevel())
            return processes().attempt(work, run.token, handlers)

        return send if executor is not None or prepared.reference is not None else None

    def _add_follow_up(self, target: HookTarget, outcome: Outcome[Any], span: RunSpan | None = None) -> None:
        has_hook = self._context.hooks.has_end_hook(target.train, outcome)
        if has_hook or span is not None:
            self._follow_ups.add(target.metadata_id, FollowUp(outcome, target if has_hook else None, span))

    def error_result(self, job: Claimed, error: BaseException) -> RunResult:
        """The result of a run whose execution raised an unexpected error: only this run fails."""
        train = self._context.trains.get(job.train)
        logger.error(
            "run %s of train %r: unexpected error",
            job.metadata_id,
            job.train,
            exc_info=error,
            extra=_extra(job),
        )
        exception = error if isinstance(error, Exception) else TraxError(f"{type(error).__name__}: {error}")
        failure = describe(exception, train=train.name, external_id=job.external_id, junction=None)
        failed = Failed(exception, failure)
        self._add_follow_up(HookTarget(train, job.metadata_id, job.input), failed)
        return build_result(job, failed, train, self._context, worker_id=self._worker_id)

    def put_back_result(self, job: Claimed, reason: str) -> RunResult:
        """The result of a claimed run that is not executed here: it goes back to the queue."""
        return self._result_without_run(job, Interrupted(reason))

    def cancelled_result(self, job: Claimed | HeldRun) -> RunResult:
        """The result of a claimed run that was cancelled before its code began."""
        return self._result_without_run(job, Cancelled("cancelled by request before it started"))

    def orphan_result(self, job: HeldRun) -> RunResult:
        """The result of an orphan, a run that this worker holds without knowing: requeued, or cancelled."""
        if job.cancel_reason is CancelReason.REQUESTED:
            return self.cancelled_result(job)
        return self._result_without_run(
            job, Interrupted("orphaned: its worker did not receive the result of the claim")
        )

    def _result_without_run(self, job: Claimed | HeldRun, outcome: Cancelled | Interrupted) -> RunResult:
        """No hooks are called for a run that never started."""
        train = self._context.trains.get(job.train)
        return build_result(job, outcome, train, self._context, worker_id=self._worker_id)

    def _invalid_job_result(self, job: Claimed, error: TraxError) -> RunResult:
        """The result for an unknown train or an invalid input: retrying would not help."""
        return RunResult(
            job.metadata_id,
            job.external_id,
            self._worker_id,
            State.FAILED,
            ResultKind.FAILURE,
            job.train,
            job.manifest_id,
            job.attempt,
            failure_exception=type(error).__name__,
            failure_reason=str(error),
            gives_up=True,
        )


def _log_failure(job: Claimed, failed: Failed) -> None:
    """Log the failure in one line; the record has the details."""
    reason = f"{failed.failure.type}: {failed.failure.message}"
    logger.info("run %s of train %r failed: %s", job.metadata_id, job.train, reason, extra=_extra(job))


def _extra(job: Claimed) -> dict[str, Any]:
    return {"metadata_id": job.metadata_id, "train": job.train, "attempt": job.attempt}


def handle_log_record(record: logging.LogRecord) -> None:
    """Handle a log record from another process as if it had been logged here."""
    local_logger = nearest_logger(record.name)
    if local_logger.isEnabledFor(record.levelno):
        local_logger.handle(record)
