"""Write the results of runs to the database in batches, then call the hooks.

While the database cannot write (fail-over, full disk, lock, missing table), a result is put back and retried
until it is written unchanged. Only a result whose content is rejected becomes a failure.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from trax.errors import StoreError
from trax.store.faults import Fault, fault_of
from trax.store.runs import metadata

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from trax.store import Connection
    from trax.worker.job_runner import FinishedJob, JobRunner

logger = logging.getLogger(__name__)


class ResultWriter:
    """Writes results of runs. `put_back` receives those that could not be written, to be retried.

    `written_before` finds results that an earlier try committed although the connection was lost.
    """

    def __init__(
        self,
        write: Callable[[Sequence[FinishedJob]], Awaitable[list[FinishedJob]]],
        find_recorded: Callable[[Sequence[FinishedJob]], Awaitable[set[int]]],
        put_back: Callable[[Sequence[FinishedJob]], None],
        runner: Callable[[], JobRunner],
    ) -> None:
        self._write = write
        self._find_recorded = find_recorded
        self._put_back = put_back
        self._runner = runner
        self._hook_tasks: set[asyncio.Task[None]] = set()
        self._batches_in_flight: list[Sequence[FinishedJob]] = []
        self.unrecordable: set[int] = set()
        """Runs whose result the database rejects. They are not run again while this worker runs."""

    @property
    def in_flight(self) -> list[FinishedJob]:
        """The results being written now."""
        return [job for batch in self._batches_in_flight for job in batch]

    async def write(self, finished: Sequence[FinishedJob]) -> int:
        """Write them in one batch, and start their hooks; return how many were recorded."""
        self._batches_in_flight.append(finished)
        try:
            written, kept = await self._write_batch(finished)
            self._start_hooks(written)
            if len(written) == len(finished):
                return len(written)
            before = await self._find_recorded_earlier(
                [job for job in finished if _run_id(job) not in kept], written
            )
            self._start_hooks(before)
            if kept:
                raise next(iter(kept.values()))
            return len(written) + len(before)
        finally:
            self._batches_in_flight.remove(finished)

    async def wait_for_hooks(self) -> None:
        """Wait until every hook has returned."""
        while self._hook_tasks:
            await asyncio.wait(self._hook_tasks)

    def _start_hooks(self, written: Sequence[FinishedJob]) -> None:
        runner = self._runner()
        with_hooks = [job for job in written if job.hook_target is not None]
        if with_hooks or (written and runner.has_telemetry):
            task = asyncio.create_task(self._call_hooks(written, with_hooks), name="trax hooks")
            self._hook_tasks.add(task)
            task.add_done_callback(self._hook_tasks.discard)

    async def _call_hooks(self, written: Sequence[FinishedJob], with_hooks: Sequence[FinishedJob]) -> None:
        """Runs in its own task: a slow hook must not delay other results."""
        await self._runner().record_durations(written)
        for job in with_hooks:
            await self._runner().call_hooks(job)

    async def _write_batch(
        self, finished: Sequence[FinishedJob]
    ) -> tuple[list[FinishedJob], dict[int, Exception]]:
        try:
            return await self._write(finished), {}
        except asyncio.CancelledError:
            self._put_back(finished)
            raise
        except Exception as error:
            if not _may_be_one_row(error):
                self._put_back(finished)
                raise
            logger.exception(
                "%s results could not be written in one batch; writing them one by one", len(finished)
            )
            return await self._write_singly(finished)

    async def _find_recorded_earlier(
        self, finished: Sequence[FinishedJob], written: Sequence[FinishedJob]
    ) -> list[FinishedJob]:
        """Those that an earlier try has recorded. The others were reassigned: their results are dropped."""
        accounted = {*map(_run_id, written), *self.unrecordable}
        refused = [job for job in finished if _run_id(job) not in accounted]
        try:
            before = await self._find_recorded(refused)
        except BaseException:
            self._put_back(refused)
            raise
        for job in refused:
            if _run_id(job) not in before:
                logger.warning(
                    "run %s: its result (%s) came too late and is not recorded; the run was taken over",
                    _run_id(job),
                    job.result.row.state,
                    extra=_extra(job),
                )
                _end_span(job)
        return [job for job in refused if _run_id(job) in before]

    async def _write_singly(
        self, finished: Sequence[FinishedJob]
    ) -> tuple[list[FinishedJob], dict[int, Exception]]:
        """Write one by one: a run whose result is rejected fails with the reason, the others are recorded.

        Results that cannot be written for another reason are put back, and returned with the error.
        """
        written: list[FinishedJob] = []
        kept: dict[int, Exception] = {}
        for number, job in enumerate(finished):
            try:
                written += await self._write_or_fail(job)
            except asyncio.CancelledError:
                self._put_back(finished[number:])
                raise
            except Exception as error:
                fault = fault_of(error)
                if fault is Fault.CONTENT:
                    logger.exception(
                        "run %s: the database rejects its result; it is not recorded",
                        _run_id(job),
                        extra=_extra(job),
                    )
                    self.unrecordable.add(_run_id(job))
                    _end_span(job)
                    continue
                rest = finished[number:] if fault is Fault.TRANSIENT else [job]
                self._put_back(rest)
                kept |= dict.fromkeys(map(_run_id, rest), error)
                if fault is Fault.TRANSIENT:
                    break
        return written, kept

    async def _write_or_fail(self, job: FinishedJob) -> list[FinishedJob]:
        try:
            return await self._write([job])
        except Exception as error:
            if fault_of(error) is not Fault.CONTENT:
                raise
            return await self._write([self._runner().unwritable_result(job, error)])


def _may_be_one_row(error: Exception) -> bool:
    """Whether a single row may be the cause, so that the others can be written without it."""
    is_unknown = type(error) is StoreError  # no subclass that names the cause
    return is_unknown or fault_of(error) is Fault.CONTENT


def find_recorded(connection: Connection, finished: Sequence[FinishedJob]) -> set[int]:
    """The ids of runs whose result an earlier try has recorded."""
    return metadata.find_already_finished(connection, [job.result.row for job in finished])


def _end_span(finished: FinishedJob) -> None:
    if finished.span is not None:
        finished.span.end(None)


def _extra(finished: FinishedJob) -> dict[str, Any]:
    """Fields that identify the run in a log line."""
    ended = finished.result
    return {"train": finished.train, "metadata_id": ended.row.metadata_id, "attempt": ended.attempt}


def _run_id(finished: FinishedJob) -> int:
    return finished.result.row.metadata_id
