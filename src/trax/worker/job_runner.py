"""Convert the outcome of a run into the result that is stored in its record."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, assert_never

from trax.engine.finish import RunResult
from trax.engine.retry import full_class_name
from trax.errors import RemoteFailure, SecretUnreadable, TraxError
from trax.records.metadata import ResultRow
from trax.records.result import ResultKind
from trax.records.states import CancelReason, State
from trax.train import Cancelled, Done, Failed, Interrupted, Outcome, RetryAfter, Run, Train, enter_run
from trax.train.outcome import describe
from trax.train.secrets import hide_words
from trax.worker.hooks import HookTarget
from trax.worker.messages import ExecuteRequest, reference_to

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence
    from datetime import timedelta

    from trax.engine.parameters import Parameters
    from trax.settings import Settings
    from trax.store import Store
    from trax.store.runs.claim import Claimed, HeldRun
    from trax.train import Cancellation, Codec
    from trax.train.run import Observer
    from trax.worker.messages import RequestHandlers, TrainReference
    from trax.worker.otel import RunSpan
    from trax.worker.parts import Parts
    from trax.worker.processes import CpuProcessPool
    from trax.worker.recorded_run import RemoteExecutor
    from trax.worker.run_log import RunProgress


T = TypeVar("T")


def result_row_of(
    outcome: Outcome[Any],
    train: Train[Any, Any],
    parameters: Parameters,
    *,
    metadata_id: int,
    worker_id: int | None = None,
    junctions: str | None = None,
) -> ResultRow:
    """The result to store for this outcome."""
    match outcome:
        case Done(value):
            output = parameters.output_to_save(train, value)
            return ResultRow(metadata_id, worker_id, State.COMPLETED, output, junctions=junctions)
        case Failed(_, failure):
            return ResultRow(
                metadata_id,
                worker_id,
                State.FAILED,
                junctions=junctions,
                failure_junction=failure.junction,
                failure_exception=failure.type,
                failure_reason=failure.message,
                stack_trace=failure.stack_trace,
            )
        case Cancelled(reason) | Interrupted(reason):
            return ResultRow(
                metadata_id,
                worker_id,
                State.CANCELLED,
                junctions=junctions,
                failure_exception="Snooze" if delay_of(outcome) is not None else type(outcome).__name__,
                failure_reason=reason,
            )
        case _:
            assert_never(outcome)


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


def unwritable_result(result: ResultRow, error: Exception) -> ResultRow:
    """The failure to store when the database rejects the content of a result."""
    return ResultRow(
        metadata_id=result.metadata_id,
        worker_id=result.worker_id,
        state=State.FAILED,
        failure_exception=type(error).__name__,
        failure_reason=f"the result ({result.state}) could not be stored: {error}",
    )


def end_kind_of(outcome: Outcome[Any], settings: Settings) -> ResultKind:
    """What the outcome counts as for the manifest, or for the entry of a single job."""
    match outcome:
        case Done():
            return ResultKind.SUCCESS
        case Failed():
            return ResultKind.FAILURE
        case Cancelled(timed_out=True) if settings.timeout_counts_as_failure:
            return ResultKind.FAILURE
        case Cancelled():
            return ResultKind.CANCELLED
        case Interrupted():
            return ResultKind.INTERRUPTED
        case _:
            assert_never(outcome)


def delay_of(outcome: Outcome[Any]) -> timedelta | None:
    """The delay that the run itself asked for (RetryAfter, Snooze), if any."""
    match outcome:
        case Failed(RetryAfter() as error):
            return error.delay
        case Interrupted(_, delay):
            return delay
        case _:
            return None


def error_class_names(outcome: Outcome[Any]) -> tuple[str, ...]:
    """The qualified names of the error's classes, which a stored retry policy is matched against."""
    if not isinstance(outcome, Failed):
        return ()
    if isinstance(outcome.error, RemoteFailure):
        return outcome.error.raised
    return tuple(map(full_class_name, type(outcome.error).__mro__))


def gives_up(outcome: Outcome[Any], train: Train[Any, Any]) -> bool:
    """Whether the train's retry policy excludes retries after this error (`give_up_on`)."""
    retry = train.options.retry
    if not isinstance(outcome, Failed) or retry is None:
        return False
    if isinstance(outcome.error, RemoteFailure):
        return any(full_class_name(each) in outcome.error.raised for each in retry.give_up_on)
    return isinstance(outcome.error, retry.give_up_on)


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


class FinishedJob(NamedTuple):
    """A run that is over: the result to record, and the hooks to call after that."""

    result: RunResult
    train: str
    outcome: Outcome[Any] | None = None
    hook_target: HookTarget | None = None
    span: RunSpan | None = None


class JobRunner:
    """Executes claimed runs of one worker."""

    def __init__(
        self,
        parts: Parts,
        store: Store,
        worker_id: int,
        processes: CpuProcessPool | None = None,
        executor: RemoteExecutor | None = None,
    ) -> None:
        self._parts = parts
        self._store = store
        self._worker_id = worker_id
        self._processes = processes
        self._executor = executor

    async def execute(self, job: Claimed, token: Cancellation) -> FinishedJob:
        """Execute the run; return its result, with what it means for its manifest."""
        parts = self._parts
        try:
            train = parts.trains.get(job.train)
            codec = parts.parameters.input_codec(train)
            value = self._decode_input(codec, job.input or "null")
            elsewhere = reference_to(train) if train.options.cpu and self._processes is not None else None
        except TraxError as error:
            return FinishedJob(self._invalid_job_result(job, error), job.train)
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
        return self._build_finished_job(job, train, outcome, junctions, span)

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

    def _build_finished_job(
        self,
        job: Claimed,
        train: Train[Any, Any],
        outcome: Outcome[Any],
        junctions: str | None = None,
        span: RunSpan | None = None,
    ) -> FinishedJob:
        has_hook = self._parts.hooks.has_end_hook(train, outcome)
        target = HookTarget(train, job.metadata_id, job.input) if has_hook else None
        return FinishedJob(
            self._build_result(job, train, outcome, junctions), job.train, outcome, target, span
        )

    def error_result(self, job: Claimed, error: BaseException) -> FinishedJob:
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
        return self._build_finished_job(job, train, Failed(exception, failure))

    def unwritable_result(self, finished: FinishedJob, error: Exception) -> FinishedJob:
        """A failure to record instead of a result that the database rejects."""
        instead = unwritable_result(finished.result.row, error)
        ended = finished.result._replace(row=instead, kind=ResultKind.FAILURE, delay=None)
        return FinishedJob(ended, finished.train, span=finished.span)

    def put_back_result(self, job: Claimed, reason: str) -> FinishedJob:
        """The result of a claimed run that is not executed here: it goes back to the queue."""
        return self._result_without_run(job, Interrupted(reason))

    def orphan_result(self, job: HeldRun) -> FinishedJob:
        """The result of an orphan, a run claimed without this worker's knowledge: put back, or cancelled."""
        if job.cancel_reason is CancelReason.REQUESTED:
            return self._result_without_run(job, Cancelled("cancelled by request"))
        return self._result_without_run(
            job, Interrupted("orphaned: its worker did not receive the result of the claim")
        )

    def _result_without_run(self, job: Claimed | HeldRun, outcome: Cancelled | Interrupted) -> FinishedJob:
        """No hooks are called for a run that never started."""
        return FinishedJob(self._build_result(job, self._parts.trains.get(job.train), outcome), job.train)

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

    @property
    def has_telemetry(self) -> bool:
        """Whether telemetry is on."""
        return self._parts.telemetry.now is not None

    async def record_durations(self, finished: Sequence[FinishedJob]) -> None:
        """Report durations to telemetry, after the results are recorded."""
        telemetry = self._parts.telemetry.now
        if telemetry is not None:
            spans = {job.result.row.metadata_id: job.span for job in finished}
            await telemetry.finish_runs(self._store, spans)

    async def call_hooks(self, finished: FinishedJob) -> None:
        """Call the hooks, after the result is recorded."""
        if finished.hook_target is not None and finished.outcome is not None:
            await self._parts.hooks.call_end_hooks(self._store, finished.hook_target, finished.outcome)

    def _build_result(
        self,
        job: Claimed | HeldRun,
        train: Train[Any, Any],
        outcome: Outcome[Any],
        junctions: str | None = None,
    ) -> RunResult:
        ending = result_row_of(
            outcome,
            train,
            self._parts.parameters,
            metadata_id=job.metadata_id,
            worker_id=self._worker_id,
            junctions=junctions,
        )
        if isinstance(outcome, Done):
            return RunResult(ending, job.external_id, ResultKind.SUCCESS, job.manifest_id, job.attempt)
        return RunResult(
            row=ending,
            external_id=job.external_id,
            kind=end_kind_of(outcome, self._parts.settings),
            manifest_id=job.manifest_id,
            attempt=job.attempt,
            raised=error_class_names(outcome),
            gives_up=gives_up(outcome, train),
            delay=delay_of(outcome),
        )

    def _invalid_job_result(self, job: Claimed, error: TraxError) -> RunResult:
        """The result for an unknown train or an invalid input: retrying would not help."""
        ending = ResultRow(
            metadata_id=job.metadata_id,
            worker_id=self._worker_id,
            state=State.FAILED,
            failure_exception=type(error).__name__,
            failure_reason=str(error),
        )
        return RunResult(
            row=ending,
            external_id=job.external_id,
            kind=ResultKind.FAILURE,
            manifest_id=job.manifest_id,
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
