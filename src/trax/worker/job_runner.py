"""Execute one claimed run, and convert its outcome into the result that is stored."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, assert_never

from trax.engine.retry import full_class_name
from trax.errors import RemoteFailure, SecretUnreadable, StoreError, TraxError
from trax.records.result import ResultKind, RunResult
from trax.records.states import CancelReason, State
from trax.train import Cancelled, Done, Failed, Interrupted, Outcome, RetryAfter, Train, set_current
from trax.train.outcome import describe
from trax.train.secrets import hide_words
from trax.worker.active_run import can_compile, compile_runner, task_cancelled
from trax.worker.capture import nearest_logger
from trax.worker.hooks import HOOK_NAMES, HookTarget, hide_in_error
from trax.worker.messages import ExecuteRequest, reference_to
from trax.worker.results import FollowUp

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from trax.store import Store
    from trax.store.runs.claim import Claimed, HeldRun
    from trax.train import Codec
    from trax.train.run import Observer
    from trax.worker.active_run import ActiveRun, Runner
    from trax.worker.app_context import AppContext
    from trax.worker.messages import RequestHandlers, TrainReference
    from trax.worker.otel import RunSpan
    from trax.worker.processes import CpuProcessPool
    from trax.worker.recorded_run import RemoteExecutor
    from trax.worker.results import FollowUps

logger = logging.getLogger(__name__)
T = TypeVar("T")


def success_result(
    job: Claimed | HeldRun, output: str | None, *, worker_id: int | None, junctions: str | None
) -> RunResult:
    """The result of a run that completed with this output, as JSON text."""
    return RunResult(
        job.metadata_id,
        job.external_id,
        worker_id,
        State.COMPLETED,
        ResultKind.SUCCESS,
        job.train,
        job.manifest_id,
        job.attempt,
        output,
        junctions,
    )


def build_result(
    job: Claimed | HeldRun,
    outcome: Outcome[Any],
    train: Train[Any, Any],
    context: AppContext,
    *,
    worker_id: int | None,
    junctions: str | None = None,
) -> RunResult:
    """The result of a run with this outcome."""
    if isinstance(outcome, Done):
        output = context.parameters.output_to_save(train, outcome.value)
        return success_result(job, output, worker_id=worker_id, junctions=junctions)
    result = partial(
        RunResult,
        job.metadata_id,
        job.external_id,
        worker_id,
        train=job.train,
        manifest_id=job.manifest_id,
        attempt=job.attempt,
        junctions=junctions,
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
        case Cancelled(reason, timed_out):
            is_failure = timed_out and context.settings.timeout_counts_as_failure
            kind = ResultKind.FAILURE if is_failure else ResultKind.CANCELLED
            return result(State.CANCELLED, kind, failure_exception="Cancelled", failure_reason=reason)
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


def hide_in_outcome(outcome: Outcome[T], secret_words: frozenset[str]) -> Outcome[T]:
    """The same outcome with these words masked; the error that the caller gets is not changed."""
    if not secret_words:
        return outcome
    match outcome:
        case Failed(error, failure):
            masked = {
                name: hide_words(getattr(failure, name), secret_words) for name in ("message", "stack_trace")
            }
            return Failed(error, replace(failure, **masked))
        case Cancelled(reason) | Interrupted(reason):
            return replace(outcome, reason=hide_words(reason, secret_words))
        case _:
            return outcome


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
        self.reference = reference_to(train) if train.options.cpu and has_processes else None
        """Where another process finds the train, if its runs have a process of their own."""
        self.codec = context.parameters.input_codec(train)
        self.input_to_save = context.parameters.input_saver()
        self.output_to_save = context.parameters.output_saver(train)
        self.has_steps_to_observe = settings.junction_progress and len(steps) > 1
        self.only_junction = steps[0].name if settings.junction_progress and len(steps) == 1 else None
        has_hooks = any(getattr(train.options, name, None) for name in HOOK_NAMES)
        self.is_plain = not (train.options.cpu or self.codec.holds_secrets or has_hooks)
        """Whether a run is only the train itself, as long as the app has neither hooks nor a tracer."""
        self.plain_runner: Runner | None = None
        """Executes a run that is plain, if the train can be compiled."""


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

    def execute(self, run: ActiveRun[Claimed]) -> Coroutine[Any, Any, RunResult]:
        """The coroutine that executes the run and returns its result. Its context must be the run's own."""
        name, context = run.job.train, self._context
        prepared = self._prepared.get(name)
        if (
            prepared is not None
            and prepared.plain_runner is not None
            and prepared.settings is context.live.current
            and context.telemetry.now is None
            and not context.hooks.has_any
        ):
            return prepared.plain_runner(run)
        return self._execute(run)

    async def _execute(self, run: ActiveRun[Claimed]) -> RunResult:
        job, context = run.job, self._context
        try:
            prepared = self._prepare(job.train)
            if prepared.plain_runner is not None and self._is_plain(prepared):
                return await prepared.plain_runner(run)
            text = job.input or "null"
            if prepared.codec.holds_secrets:
                run.job = job = await self._seal_input(job, prepared, text)
            value = self._decode_input(prepared.codec, text)
        except StoreError as error:
            return self.put_back_result(job, f"the secrets in its input could not be encrypted: {error}")
        except TraxError as error:
            return self._invalid_job_result(job, error)
        self._open(run, prepared)
        try:
            if self._is_plain(prepared):
                outcome = await self._attempt(prepared, run, value)
            else:
                outcome = await self._attempt_fully(prepared, run, value)
        except asyncio.CancelledError:
            outcome = task_cancelled(prepared.train, run)
        finally:
            junctions = context.run_log.end_run(run)
            context.run_log.close_run(run)
        context.counters.count_run(prepared.train.name, run.seconds, run.pickup_seconds)
        if isinstance(outcome, Done):
            output = prepared.output_to_save(outcome.value)
            result = success_result(job, output, worker_id=self._worker_id, junctions=junctions)
            return result._replace(began=run.began)
        return self._other_result(run, prepared, outcome, junctions)

    def _other_result(
        self, run: ActiveRun[Claimed], prepared: PreparedTrain, outcome: Outcome[Any], junctions: str | None
    ) -> RunResult:
        if isinstance(outcome, Failed):
            _log_failure(run.job, outcome)
        result = build_result(
            run.job, outcome, prepared.train, self._context, worker_id=self._worker_id, junctions=junctions
        )
        return result._replace(began=run.began)

    def _prepare(self, name: str) -> PreparedTrain:
        prepared = self._prepared.get(name)
        if prepared is None or prepared.settings is not self._context.live.current:
            train = self._context.trains.get(name)
            prepared = PreparedTrain(train, self._context, has_processes=self._processes is not None)
            if prepared.is_plain and self._executor is None and can_compile(train):
                prepared.plain_runner = compile_runner(
                    prepared,
                    self._context,
                    self._store,
                    self._worker_id,
                    invalid_result=self._invalid_job_result,
                    other_result=self._other_result,
                )
            self._prepared[name] = prepared
        return prepared

    def _is_plain(self, prepared: PreparedTrain) -> bool:
        context = self._context
        return (
            prepared.is_plain
            and self._executor is None
            and context.telemetry.now is None
            and not context.hooks.has_any
        )

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

    def _decode_input(self, codec: Codec[Any], text: str) -> Any:
        try:
            return codec.decode(text)
        except SecretUnreadable:
            if self._executor is None:
                raise
            return None  # only the process that executes it needs the key

    def _open(self, run: ActiveRun[Claimed], prepared: PreparedTrain) -> None:
        """Start collecting its log lines and progress; set the input to save, if not all of it is saved."""
        run.activator = self._context.activator
        set_current(run)
        self._context.run_log.open_run(self._store, run)
        text = run.job.input
        if text and (kept := prepared.input_to_save(text)) is not text:
            run.replaced_input = (kept,)

    def _attempt(
        self, prepared: PreparedTrain, run: ActiveRun[Claimed], value: Any
    ) -> Awaitable[Outcome[Any]]:
        if prepared.only_junction is not None:
            run.current = prepared.only_junction, run.began
        observer = run.enter if prepared.has_steps_to_observe else None
        return _attempt_here(prepared.train, run, value, observer)

    async def _attempt_fully(
        self, prepared: PreparedTrain, run: ActiveRun[Claimed], value: Any
    ) -> Outcome[Any]:
        """The same with hooks, a span and secrets, here or in another process."""
        job, train, context = run.job, prepared.train, self._context
        run.secret_words = prepared.codec.secret_words(value)
        telemetry = context.telemetry.now
        span = None if telemetry is None else telemetry.start_run(run.run, worker_id=self._worker_id)
        try:
            if context.hooks.has_start_hook(train):
                await context.hooks.call_start_hooks(
                    self._store, HookTarget(train, job.metadata_id, job.input)
                )
            outcome = await self._attempt_anywhere(prepared, run, value, span)
            outcome = hide_in_outcome(outcome, run.secret_words)
        except asyncio.CancelledError:
            outcome = task_cancelled(train, run)
        if span is not None:
            span.stop(outcome)
        self._add_follow_up(job, train, hide_in_error(outcome, run.secret_words), span)
        return outcome

    def _attempt_anywhere(
        self, prepared: PreparedTrain, run: ActiveRun[Claimed], value: Any, span: RunSpan | None
    ) -> Awaitable[Outcome[Any]]:
        train, reference = prepared.train, prepared.reference
        is_here = not (reference or self._executor)
        observer = run.enter if self._context.settings.junction_progress else None
        if span is not None:
            observer = span.observer(train, observer, run.token, is_here=is_here)
        if not is_here:
            return self._attempt_elsewhere(train, run, self._build_handlers(run, observer), reference)
        return _attempt_here(train, run, value, observer)

    def _add_follow_up(
        self, job: Claimed, train: Train[Any, Any], outcome: Outcome[Any], span: RunSpan | None = None
    ) -> None:
        has_hook = self._context.hooks.has_end_hook(train, outcome)
        if has_hook or span is not None:
            target = HookTarget(train, job.metadata_id, job.input) if has_hook else None
            self._follow_ups.add(job.metadata_id, FollowUp(outcome, target, span))

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
        self._add_follow_up(job, train, failed)
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

    def _attempt_elsewhere(
        self,
        train: Train[Any, Any],
        run: ActiveRun[Claimed],
        handlers: RequestHandlers,
        reference: TrainReference | None,
    ) -> Awaitable[Outcome[Any]]:
        """Execute remotely or in a child process; `handlers` get progress, log lines and activations."""
        text = run.job.input or "null"
        if self._executor is not None:
            return self._executor.attempt(train, text, run.run, handlers)
        assert self._processes is not None  # noqa: S101 - checked by the caller
        assert reference is not None  # noqa: S101
        facts = {name: getattr(run.run, name) for name in RUN_FIELDS}
        work = ExecuteRequest(reference, text, facts, logging.getLogger().getEffectiveLevel())
        return self._processes().attempt(work, run.token, handlers)

    def _build_handlers(self, run: ActiveRun[Claimed], observer: Observer | None) -> RequestHandlers:
        """The callbacks for a run that is executed in another process."""

        def activate(wanted: list[tuple[str, Any]], force: bool) -> int:  # noqa: FBT001 - as in the message
            return self._context.activator.activate_blocking(run.run, wanted, force=force)

        on_junction = observer or run.enter
        return {
            "activate": activate,
            "progress": run.report,
            "junction": on_junction,
            "log": handle_log_record,
        }

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


def _attempt_here(
    train: Train[Any, Any], run: ActiveRun[Claimed], value: Any, observer: Observer | None
) -> Awaitable[Outcome[Any]]:
    return train.attempt(
        value, cancellation=run.token, external_id=run.external_id, on_junction=observer, task=run.task
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
