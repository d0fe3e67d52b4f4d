"""Write the results of runs to the database in batches, then call the hooks.

While the database cannot write (fail-over, full disk, lock, missing table), a result is kept and retried
until it is written unchanged. Only a result whose content is rejected becomes a failure.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from trax.errors import StoreError
from trax.records.result import ResultKind
from trax.records.states import State
from trax.store.faults import Fault, fault_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from trax.records.result import RunResult
    from trax.store import Store
    from trax.train import Outcome
    from trax.worker.app_context import AppContext
    from trax.worker.hooks import HookTarget
    from trax.worker.otel import RunSpan

logger = logging.getLogger(__name__)

MAX_BATCH_CHARACTERS: Final = 8_000_000
"""The maximum of outputs and stack traces in one batch; those of a single result may be longer."""


def unwritable_result(result: RunResult, error: Exception) -> RunResult:
    """The failure to store instead of a result whose content the database rejects."""
    return result._replace(
        state=State.FAILED,
        kind=ResultKind.FAILURE,
        output=None,
        junctions=None,
        failure_junction=None,
        failure_exception=type(error).__name__,
        failure_reason=f"the result ({result.state}) could not be stored: {error}",
        stack_trace=None,
        delay=None,
    )


class FollowUp(NamedTuple):
    """What follows when the result of a run is written: its hooks are called, and its span ends.

    `hook_target` is None if there is no hook for this outcome.
    """

    outcome: Outcome[Any]
    hook_target: HookTarget | None
    span: RunSpan | None


async def run_follow_ups(
    context: AppContext, store: Store, follow_ups: Mapping[int, FollowUp | None]
) -> None:
    """Record durations and end spans of runs whose results are written, then call their hooks."""
    telemetry = context.telemetry.now
    if telemetry is not None:
        spans = {run_id: None if each is None else each.span for run_id, each in follow_ups.items()}
        await telemetry.finish_runs(store, spans)
    for each in follow_ups.values():
        if each is not None and each.hook_target is not None:
            await context.hooks.call_end_hooks(store, each.hook_target, each.outcome)


class FollowUps:
    """The follow-ups of runs whose results are not written yet, by the id of the run. Most runs have none."""

    def __init__(self, context: AppContext, store: Store) -> None:
        self._context = context
        self._store = store
        self._by_run: dict[int, FollowUp] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._by_run)

    def add(self, metadata_id: int, follow_up: FollowUp) -> None:
        self._by_run[metadata_id] = follow_up

    def drop(self, result: RunResult) -> None:
        """The result will not be written: call no hooks, and end the span."""
        follow_up = self._by_run.pop(result.metadata_id, None)
        if follow_up is not None and follow_up.span is not None:
            follow_up.span.end(None)

    def drop_hooks(self, result: RunResult) -> None:
        """A failure was written instead of the result: its hooks must not receive the original outcome."""
        follow_up = self._by_run.get(result.metadata_id)
        if follow_up is not None:
            self._by_run[result.metadata_id] = follow_up._replace(hook_target=None)

    def start(self, written: Sequence[RunResult]) -> None:
        """Start the follow-ups of these results, in their own task: a slow hook must not delay others."""
        has_telemetry = self._context.telemetry.now is not None
        if not written or not (self._by_run or has_telemetry):
            return
        found = {run.metadata_id: self._by_run.pop(run.metadata_id, None) for run in written}
        if has_telemetry or any(found.values()):
            work = run_follow_ups(self._context, self._store, found)
            task = asyncio.create_task(work, name="trax hooks")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        """Wait until every hook has returned."""
        while self._tasks:
            await asyncio.wait(self._tasks)


WriteResults: TypeAlias = "Callable[[Sequence[RunResult]], Awaitable[Sequence[RunResult]]]"
"""Writes results in one transaction, and returns those that were written."""


class ResultWriter:
    """Writes results of runs. `put_back` receives those that could not be written, to be retried.

    `find_recorded` finds results that an earlier try committed although the connection was lost. A result
    that alone is refused, even as a failure, is held back: it is tried again with `retry_held_back`, and does
    not delay others until then.
    """

    def __init__(
        self,
        write: WriteResults,
        find_recorded: Callable[[Sequence[RunResult]], Awaitable[set[int]]],
        put_back: Callable[[Sequence[RunResult]], None],
        follow_ups: FollowUps,
    ) -> None:
        self._write = write
        self._find_recorded = find_recorded
        self._put_back = put_back
        self._follow_ups = follow_ups
        self._batches_in_flight: list[Sequence[RunResult]] = []
        self._held_back: dict[int, RunResult] = {}
        self._reported: set[int] = set()
        """The runs that were held back before: each is logged once."""

    @property
    def results_to_write(self) -> list[RunResult]:
        """The results that are being written now or held back."""
        batches = (*self._batches_in_flight, self._held_back.values())
        return [result for batch in batches for result in batch]

    async def write(self, results: Sequence[RunResult], write: WriteResults | None = None) -> int:
        """Write them, usually in one batch, and start their hooks; return how many were recorded.

        `write` does it in a transaction of the caller's, unless they are too long or one of them is refused.
        """
        self._batches_in_flight.append(results)
        try:
            if _size(results) <= MAX_BATCH_CHARACTERS:
                return await self._write_and_follow_up(results, write or self._write)
            return await self._write_in_parts(list(_parts(results)))
        finally:
            self._batches_in_flight.remove(results)

    async def retry_held_back(self) -> None:
        """Try again to write the results that were refused, for as long as their runs are held."""
        if self._held_back:
            held_back, self._held_back = list(self._held_back.values()), {}
            self._reported = {result.metadata_id for result in held_back}
            with suppress(StoreError):  # they are held back again, or put back
                await self.write(held_back)

    async def _write_in_parts(self, parts: Sequence[Sequence[RunResult]]) -> int:
        recorded = 0
        for number, part in enumerate(parts):
            try:
                recorded += await self._write_and_follow_up(part, self._write)
            except BaseException:
                self._put_back([result for later in parts[number + 1 :] for result in later])
                raise
        return recorded

    async def _write_and_follow_up(self, results: Sequence[RunResult], write: WriteResults) -> int:
        written, kept = await self._write_batch(results, write)
        self._follow_ups.start(written)
        if len(written) == len(results):
            return len(written)
        accounted = {*(result.metadata_id for result in written), *kept, *self._held_back}
        before = await self._find_recorded_earlier(
            [result for result in results if result.metadata_id not in accounted]
        )
        self._follow_ups.start(before)
        if kept:
            raise next(iter(kept.values()))
        return len(written) + len(before)

    async def wait_for_hooks(self) -> None:
        """Wait until every hook has returned."""
        await self._follow_ups.wait()

    async def _write_batch(
        self, results: Sequence[RunResult], write: WriteResults
    ) -> tuple[Sequence[RunResult], dict[int, Exception]]:
        try:
            return await write(results), {}
        except asyncio.CancelledError:
            self._put_back(results)
            raise
        except Exception as error:
            if not _may_be_one_row(error):
                self._put_back(results)
                raise
            logger.exception(
                "results: %s could not be written in one batch; writing them one by one", len(results)
            )
            return await self._write_singly(results)

    async def _find_recorded_earlier(self, refused: Sequence[RunResult]) -> list[RunResult]:
        """Those that an earlier try has recorded. The others were reassigned: their results are dropped."""
        try:
            before = await self._find_recorded(refused)
        except BaseException:
            self._put_back(refused)
            raise
        for result in refused:
            if result.metadata_id not in before:
                logger.warning(
                    "run %s: its result (%s) arrived too late and is not recorded: the run was reassigned",
                    result.metadata_id,
                    result.state,
                    extra=_extra(result),
                )
                self._follow_ups.drop(result)
        return [result for result in refused if result.metadata_id in before]

    async def _write_singly(
        self, results: Sequence[RunResult]
    ) -> tuple[list[RunResult], dict[int, Exception]]:
        """Write one by one: a run whose result is rejected fails with the reason, the others are recorded.

        One that is refused even so is held back. Results that cannot be written because of the database are
        kept for a retry, and returned with the error.
        """
        written: list[RunResult] = []
        kept: dict[int, Exception] = {}
        for number, result in enumerate(results):
            try:
                written += await self._write_or_fail(result)
            except asyncio.CancelledError:
                self._put_back(results[number:])
                raise
            except Exception as error:  # noqa: BLE001 - kept, or raised by the caller
                if _may_be_one_row(error):
                    self._hold_back(result)
                    continue
                fault = fault_of(error)
                rest = results[number:] if fault is Fault.TRANSIENT else [result]
                self._put_back(rest)
                kept |= {each.metadata_id: error for each in rest}
                if fault is Fault.TRANSIENT:
                    break
        return written, kept

    def _hold_back(self, result: RunResult) -> None:
        """Keep a result that the database refuses, to be called while its error is handled."""
        self._held_back[result.metadata_id] = result
        level = logging.DEBUG if result.metadata_id in self._reported else logging.ERROR
        text = "run %s: the database refuses its result; trying again with each heartbeat"
        logger.log(level, text, result.metadata_id, exc_info=True, extra=_extra(result))

    async def _write_or_fail(self, result: RunResult) -> Sequence[RunResult]:
        try:
            return await self._write([result])
        except Exception as error:
            if fault_of(error) is not Fault.CONTENT:
                raise
            written = await self._write([unwritable_result(result, error)])
            if written:
                self._follow_ups.drop_hooks(result)
            return written


def _size(results: Sequence[RunResult]) -> int:
    """The characters of what may be long."""
    return sum(
        len(result.output or "") + len(result.stack_trace or "") + len(result.failure_reason or "")
        for result in results
    )


def _parts(results: Sequence[RunResult]) -> Iterator[list[RunResult]]:
    """The results in batches that are not too long."""
    part: list[RunResult] = []
    size = 0
    for result in results:
        one = _size([result])
        if part and size + one > MAX_BATCH_CHARACTERS:
            yield part
            part, size = [], 0
        part.append(result)
        size += one
    yield part


def _may_be_one_row(error: Exception) -> bool:
    """Whether a single row may be the cause, so that the others can be written without it."""
    is_unknown = type(error) is StoreError  # no subclass that names the cause
    return is_unknown or fault_of(error) is Fault.CONTENT


def _extra(result: RunResult) -> dict[str, Any]:
    """Fields that identify the run in a log line."""
    return {"train": result.train, "metadata_id": result.metadata_id, "attempt": result.attempt}
