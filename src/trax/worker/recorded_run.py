"""`app.run`: run a train now and record it, in this process or a remote one."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from itertools import chain, repeat
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

from trax.engine.actor import record_audit
from trax.engine.parameters import secret_mode
from trax.errors import InvalidArgument, StoreError, StoreUnavailable
from trax.records.metadata import NewRun
from trax.records.work_queue_entry import new_external_id
from trax.store.faults import Fault, fault_of
from trax.store.runs import claim, metadata
from trax.store.runs.claim import HeldRun
from trax.train import Cancellation, Cancelled, Run, current, enter_run, result_of
from trax.worker.active_run import RunProgress
from trax.worker.hooks import HookTarget, hide_in_error
from trax.worker.job_runner import build_result, execute_recorded, judge_timeout
from trax.worker.loop import PAUSES
from trax.worker.results import FollowUp, run_follow_ups, unwritable_result

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine

    from trax.records.result import RunResult
    from trax.store import Connection, Store
    from trax.train import Outcome, Train
    from trax.worker.app_context import AppContext
    from trax.worker.messages import RequestHandlers
    from trax.worker.otel import RunSpan
    from trax.worker.run_log import FinalBatch

logger = logging.getLogger(__name__)
Out = TypeVar("Out")


class RemoteExecutor(Protocol):
    """Executes one run remotely. Its progress, log lines and activations are passed to the handlers."""

    def attempt(
        self, train: Train[Any, Any], text: str, run: Run, handlers: RequestHandlers
    ) -> Awaitable[Outcome[Any]]: ...


@runtime_checkable
class Remote(RemoteExecutor, Protocol):
    """The target of `app.run(…, on=remote)`: it keeps the record itself, or the caller's process does."""

    @property
    def keeps_records(self) -> bool: ...

    def run(
        self, train: Train[Any, Any], text: str, parent_id: int | None, token: Cancellation
    ) -> Awaitable[Outcome[Any]]: ...


async def run_on(remote: Remote, context: AppContext, train: Train[Any, Out], value: Any) -> Out:
    """Run the train remotely and wait. It occupies the slots that limit `app.run` in this process."""
    if not isinstance(cast("Any", remote), Remote):
        raise InvalidArgument("on", "a remote, such as HttpWorkers or RayWorkers", remote)
    if not remote.keeps_records:
        return await RecordedRun(context, await context.store.open(), train, executor=remote).run(value)
    text, parent = context.parameters.input_codec(train).encode(value), current()
    async with context.limits.slot(train):
        token = parent.cancellation if parent else Cancellation()
        return result_of(await remote.run(train, text, parent.metadata_id if parent else None, token))


T = TypeVar("T")


class RemoteCaller(NamedTuple):
    """The caller of a run in another process: its parent run, if any, and its cancellation."""

    metadata_id: int | None
    cancellation: Cancellation


class RecordedRun(Generic[Out]):
    """One run of a train and its record."""

    def __init__(
        self,
        context: AppContext,
        store: Store,
        train: Train[Any, Out],
        *,
        executor: RemoteExecutor | None = None,
        caller: RemoteCaller | None = None,
    ) -> None:
        self._context = context
        self._store = store
        self._train = train
        self._executor = executor
        self._caller = caller
        self.metadata_id: int | None = None
        """The id of its record, once that is inserted."""
        self._worker_id: int | None = None

    async def run(self, input_value: Any) -> Out:
        """Run the train and record the result; an error is raised unchanged."""
        context, train, executor = self._context, self._train, self._executor
        codec = context.parameters.input_codec(train)
        # A remote side reads the text; a record only stores it.
        is_kept = codec.holds_secrets and executor is None
        text = codec.encode(input_value, secrets=secret_mode() if is_kept else "sealed")
        async with context.limits.slot(train):
            progress, run = await self._start_run(text)
            context.run_log.open_run(self._store, progress)
            target = HookTarget(train, progress.metadata_id, text)
            telemetry = context.telemetry.now
            span = None if telemetry is None else telemetry.start_run(run)
            elsewhere = None if executor is None else partial(executor.attempt, train, text, run)
            try:
                with enter_run(run):
                    value = codec.copy(input_value) if is_kept else codec.decode(text)
                    progress.secret_words = run.secret_words = codec.secret_words(value)
                    work = execute_recorded(
                        context,
                        self._store,
                        train,
                        progress,
                        value,
                        target=target,
                        span=span,
                        elsewhere=elsewhere,
                    )
                    return result_of(await self._record(progress, work, target, span))
            finally:
                context.run_log.close_run(progress)
                if span is not None:
                    span.leave()
                    span.end(None)

    async def _start_run(self, text: str) -> tuple[RunProgress, Run]:
        """Insert the record. A nested run has the manifest of its parent."""
        around = None if self._caller else current()
        parent = self._caller or around
        presence = self._context.heartbeat
        self._worker_id = presence.caller_id or await asyncio.to_thread(
            presence.ensure_caller_row, self._store
        )
        new = NewRun(
            external_id=new_external_id(),
            train=self._train.name,
            input=self._context.parameters.input_to_save(text),
            parent_id=parent.metadata_id if parent else None,
            timeout_seconds=_seconds(self._train),
            host=self._context.identity.host,
            worker_id=self._worker_id,
            exempt=self._train.options.exclude_from_max_active_jobs,
        )
        self.metadata_id = metadata_id = await self._insert(new)
        token = parent.cancellation if parent else Cancellation()
        progress = RunProgress(metadata_id, new.external_id, token)
        return progress, Run(
            metadata_id=metadata_id,
            external_id=new.external_id,
            train=new.train,
            manifest=around.manifest if around else None,
            parent_id=new.parent_id,
            cancellation=token,
            activator=around.activator if around else None,
            reporter=progress.report,
        )

    async def _record(
        self, progress: RunProgress, work: Awaitable[Any], target: HookTarget, span: RunSpan | None
    ) -> Outcome[Any]:
        """Do the work of the run, then write its result and call the hooks, whatever happens."""
        try:
            outcome = progress.outcome(await work)
            outcome = judge_timeout(outcome, progress.external_id, self._train, self._context)
        except asyncio.CancelledError:
            stopped = Cancelled("the caller was cancelled")
            await _finish_despite_cancel(self._end(progress, stopped, target, span))
            raise
        await self._end(progress, outcome, target, span)
        return outcome

    async def _end(
        self, progress: RunProgress, outcome: Outcome[Any], target: HookTarget, span: RunSpan | None
    ) -> None:
        context, train = self._context, self._train
        junctions = context.run_log.end_run(progress)
        context.counters.count_run(train.name, progress.seconds)
        if span is not None:
            span.stop(outcome)
        held = HeldRun(progress.metadata_id, progress.external_id, train.name, None, 1, None)
        result = build_result(held, outcome, train, context, worker_id=self._worker_id, junctions=junctions)
        await _finish_despite_cancel(self._write_with_retries(result))
        follow_up = FollowUp(hide_in_error(outcome, progress.secret_words), target, span)
        await run_follow_ups(context, self._store, {progress.metadata_id: follow_up})

    async def _write_with_retries(self, result: RunResult) -> None:
        """Write the result; retry for up to `worker_lost_after`, while the caller waits.

        If the database rejects the content, a failure is written instead, and the error is raised.
        """
        until = monotonic() + self._context.settings.worker_lost_after.total_seconds()
        for pause in chain(PAUSES, repeat(PAUSES[-1])):
            try:
                await self._write(result)
            except Exception as error:
                if fault_of(error) is Fault.CONTENT:
                    await self._write(unwritable_result(result, error))
                    raise
                if monotonic() + pause > until:
                    raise
                text = "run %s: its result could not be written, trying again in %s s: %s"
                extra = {"metadata_id": result.metadata_id, "train": self._train.name}
                logger.warning(text, result.metadata_id, pause, error, extra=extra)
            else:
                return
            await asyncio.sleep(pause)

    async def _write(self, result: RunResult) -> None:
        with self._context.run_log.final_batch([result.metadata_id]) as final_batch:
            await self._store.call(self._finish, result, final_batch)

    async def _insert(self, new: NewRun) -> int:
        """Insert the record; if the answer is lost, look for it: without its run it would stay for ever."""
        try:
            return await self._store.call(self._insert_run, new)
        except StoreUnavailable as error:
            if not error.may_be_committed or self._worker_id is None:
                raise
            with suppress(StoreError):
                for held in await self._store.ask(claim.load_held_runs, self._worker_id):
                    if held.external_id == new.external_id:
                        return held.metadata_id
            raise

    def _insert_run(self, connection: Connection, new: NewRun) -> int:
        now = self._store.now(connection)
        metadata_id = metadata.begin(connection, new, now=now)
        record_audit(
            connection, "trains.run", "train", [new.train], now=now, after={"execution_id": metadata_id}
        )
        return metadata_id

    def _finish(self, connection: Connection, result: RunResult, final_batch: FinalBatch | None) -> None:
        now = self._store.now(connection)
        if final_batch is not None:
            final_batch.write(connection, now=now)
        is_written = metadata.finish(connection, [result], now=now)
        if not (is_written or metadata.find_already_finished(connection, [result])):
            logger.warning(
                "run %s: its result (%s) arrived too late: worker %s missed its heartbeat, so the run failed",
                result.metadata_id,
                result.state,
                result.worker_id,
                extra={"metadata_id": result.metadata_id, "train": self._train.name},
            )


def _seconds(train: Train[Any, Any]) -> float | None:
    return train.options.timeout.total_seconds() if train.options.timeout else None


async def _finish_despite_cancel(work: Coroutine[Any, Any, T]) -> T:
    """Finish this even if the caller is cancelled: a result must not be lost."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
