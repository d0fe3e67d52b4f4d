"""Execute one claimed run, and convert its outcome into the result that is stored."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, assert_never

from trax.engine.retry import full_class_name
from trax.errors import RemoteFailure, SecretUnreadable, TraxError
from trax.records.result import ResultKind, RunResult
from trax.records.states import CancelReason, State
from trax.train import Cancelled, Done, Failed, Interrupted, Outcome, RetryAfter, Run, Train, enter_run
from trax.train.outcome import describe
from trax.train.secrets import hide_words
from trax.worker.hooks import HookTarget
from trax.worker.messages import ExecuteRequest, reference_to
from trax.worker.results import FollowUp

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from trax.store import Store
    from trax.store.runs.claim import Claimed, HeldRun
    from trax.train import Cancellation, Codec
    from trax.train.run import Observer
    from trax.worker.messages import RequestHandlers, TrainReference
    from trax.worker.otel import RunSpan
    from trax.worker.parts import Parts
    from trax.worker.processes import CpuProcessPool
    from trax.worker.recorded_run import RemoteExecutor
    from trax.worker.results import FollowUps
    from trax.worker.run_log import RunProgress


T = TypeVar("T")


def build_result(
    job: Claimed | HeldRun,
    outcome: Outcome[Any],
    train: Train[Any, Any],
    parts: Parts,
    *,
    worker_id: int | None,
    junctions: str | None = None,
) -> RunResult:
    """The result of a run with this outcome."""
    if isinstance(outcome, Done):
        return RunResult(
            job.metadata_id,
            job.external_id,
            worker_id,
            State.COMPLETED,
            ResultKind.SUCCESS,
            job.train,
            job.manifest_id,
            job.attempt,
            parts.parameters.output_to_save(train, outcome.value),
            junctions,
        )
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
            is_failure = timed_out and parts.settings.timeout_counts_as_failure
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


logger = logging.getLogger(__name__)

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


class JobRunner:
    """Executes claimed runs of one worker."""

    def __init__(
        self,
        parts: Parts,
        store: Store,
        worker_id: int,
        follow_ups: FollowUps,
        processes: CpuProcessPool | None = None,
        executor: RemoteExecutor | None = None,
    ) -> None:
        self._parts = parts
        self._store = store
        self._worker_id = worker_id
        self._follow_ups = follow_ups
        self._processes = processes
        self._executor = executor

    async def execute(self, job: Claimed, token: Cancellation) -> RunResult:
        """Execute the run; return its result."""
        parts = self._parts
        try:
            train = parts.trains.get(job.train)
            codec = parts.parameters.input_codec(train)
            value = self._decode_input(codec, job.input or "null")
            elsewhere = reference_to(train) if train.options.cpu and self._processes is not None else None
        except TraxError as error:
            return self._invalid_job_result(job, error)
        progress = self._open_progress(job, token)
        run = self._build_run(job, token, progress)
        run.secret_words = codec.secret_words(value)
        telemetry = parts.telemetry.now
        span = None if telemetry is None else telemetry.start_run(run, worker_id=self._worker_id)
        try:
            with enter_run(run):
                if parts.hooks.has_start_hook(train):
                    await parts.hooks.call_start_hooks(
                        self._store, HookTarget(train, job.metadata_id, job.input)
                    )
                observer = self._observer(train, progress, span, is_here=not (elsewhere or self._executor))
                if elsewhere or self._executor:
                    attempt = self._attempt_elsewhere(
                        train, job, run, self._build_desk(run, progress, observer), elsewhere
                    )
                else:
                    attempt = train.attempt(
                        value, cancellation=token, external_id=job.external_id, on_junction=observer
                    )
                try:
                    outcome = await attempt
                except asyncio.CancelledError:
                    outcome = Cancelled("its task was cancelled")
                outcome = hide_in_outcome(outcome, run.secret_words)
        finally:
            junctions = parts.run_log.end_run(progress)
            parts.run_log.close_run(progress)
        parts.counters.count_run(train.name, progress.seconds, waited_seconds=job.waited_seconds)
        if span is not None:
            span.stop(outcome)
        if isinstance(outcome, Failed):
            _log_failure(job, outcome)
        result = build_result(job, outcome, train, parts, worker_id=self._worker_id, junctions=junctions)
        self._add_follow_up(job, train, outcome, span)
        return result

    def _decode_input(self, codec: Codec[Any], text: str) -> Any:
        try:
            return codec.decode(text)
        except SecretUnreadable:
            if self._executor is None:
                raise
            return None  # only the process that executes it needs the key

    def _observer(
        self, train: Train[Any, Any], progress: RunProgress, span: RunSpan | None, *, is_here: bool
    ) -> Observer | None:
        observer = progress.enter if self._parts.settings.junction_progress else None
        return observer if span is None else span.observer(train, observer, progress.token, is_here=is_here)

    def _open_progress(self, job: Claimed, token: Cancellation) -> RunProgress:
        """Start collecting its log lines and progress; set the input to save, if not all of it is saved."""
        progress = self._parts.run_log.open_run(
            self._store, job.metadata_id, job.external_id, token, is_held=True
        )
        kept = job.input and self._parts.parameters.input_to_save(job.input)
        if kept is not job.input:
            progress.replaced_input = (kept,)
        return progress

    def _build_run(self, job: Claimed, token: Cancellation, progress: RunProgress) -> Run:
        """The `Run` that its junctions get from `current()`."""
        return Run(
            metadata_id=job.metadata_id,
            external_id=job.external_id,
            train=job.train,
            manifest=job.manifest,
            attempt=job.attempt,
            scheduled_for=job.scheduled_for,
            cancellation=token,
            activator=self._parts.activator,
            reporter=progress.report,
        )

    def _add_follow_up(
        self, job: Claimed, train: Train[Any, Any], outcome: Outcome[Any], span: RunSpan | None = None
    ) -> None:
        has_hook = self._parts.hooks.has_end_hook(train, outcome)
        if has_hook or span is not None:
            target = HookTarget(train, job.metadata_id, job.input) if has_hook else None
            self._follow_ups.add(job.metadata_id, FollowUp(outcome, target, span))

    def error_result(self, job: Claimed, error: BaseException) -> RunResult:
        """The result of a run whose execution raised an unexpected error: only this run fails."""
        train = self._parts.trains.get(job.train)
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
        return build_result(job, failed, train, self._parts, worker_id=self._worker_id)

    def put_back_result(self, job: Claimed, reason: str) -> RunResult:
        """The result of a claimed run that is not executed here: it goes back to the queue."""
        return self._result_without_run(job, Interrupted(reason))

    def orphan_result(self, job: HeldRun) -> RunResult:
        """The result of an orphan, a run claimed without this worker's knowledge: put back, or cancelled."""
        if job.cancel_reason is CancelReason.REQUESTED:
            return self._result_without_run(job, Cancelled("cancelled by request"))
        return self._result_without_run(
            job, Interrupted("orphaned: its worker did not receive the result of the claim")
        )

    def _result_without_run(self, job: Claimed | HeldRun, outcome: Cancelled | Interrupted) -> RunResult:
        """No hooks are called for a run that never started."""
        train = self._parts.trains.get(job.train)
        return build_result(job, outcome, train, self._parts, worker_id=self._worker_id)

    def _attempt_elsewhere(
        self,
        train: Train[Any, Any],
        job: Claimed,
        run: Run,
        desk: RequestHandlers,
        reference: TrainReference | None,
    ) -> Awaitable[Outcome[Any]]:
        """Execute remotely or in a child process; progress, logs and activations arrive at the desk."""
        if self._executor is not None:
            return self._executor.attempt(train, job.input or "null", run, desk)
        assert self._processes is not None  # noqa: S101 - checked by the caller
        assert reference is not None  # noqa: S101
        facts = {name: getattr(run, name) for name in RUN_FIELDS}
        work = ExecuteRequest(reference, job.input or "null", facts, logging.getLogger().getEffectiveLevel())
        return self._processes.attempt(work, run.cancellation, desk)

    def _build_desk(self, run: Run, progress: RunProgress, observer: Observer | None) -> RequestHandlers:
        """The callbacks for a run that is executed in another process."""

        def activate(wanted: list[tuple[str, Any]], force: bool) -> int:  # noqa: FBT001 - as in the message
            return self._parts.activator.activate_blocking(run, wanted, force=force)

        on_junction = observer or progress.enter
        return {
            "activate": activate,
            "progress": progress.report,
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


def _log_failure(job: Claimed, failed: Failed) -> None:
    """Log the failure in one line; the record has the details."""
    reason = f"{failed.failure.type}: {failed.failure.message}"
    logger.info("run %s of train %r failed: %s", job.metadata_id, job.train, reason, extra=_extra(job))


def _extra(job: Claimed) -> dict[str, Any]:
    return {"metadata_id": job.metadata_id, "train": job.train, "attempt": job.attempt}


def handle_log_record(record: logging.LogRecord) -> None:
    """Handle a log record from another process as if it had been logged here."""
    local_logger = logging.getLogger(record.name)
    if local_logger.isEnabledFor(record.levelno):
        local_logger.handle(record)
