"""One claimed run, from its stored input to its ending. Nothing it meets leaves as an exception."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trax.admin.finishing import Ended
from trax.errors import SecretUnreadable, TraxError
from trax.host.hooks import Told
from trax.host.outcomes import delay_of, ending_of, gives_up, hide_in_outcome, kind_of, raised, unwritable
from trax.records.ended import EndKind
from trax.records.metadata import Ending
from trax.records.states import CancelReason, State
from trax.train import Cancelled, Done, Failed, Interrupted, Outcome, Run, Train, entered
from trax.train.failure import describe
from trax.work.messages import Work
from trax.work.reference import reference_to

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from trax.host.far import Far
    from trax.host.parts import Parts
    from trax.host.progress import RunProgress
    from trax.host.telemetry.spans import RunSpan
    from trax.store import Store
    from trax.store.claim import Claimed, Held
    from trax.train import Cancellation, Codec
    from trax.train.journey import Observer
    from trax.work.messages import Desk
    from trax.work.processes import Processes
    from trax.work.reference import Reference

logger = logging.getLogger(__name__)

FACTS: Final = ("metadata_id", "external_id", "train", "manifest", "attempt", "parent_id", "scheduled_for")
"""What a run in another process knows of itself."""


class Finished(NamedTuple):
    """A job whose run is over: what is to be written, and who is to be told once it is, if anybody is."""

    ended: Ended
    train: str
    outcome: Outcome[Any] | None = None
    told: Told | None = None
    span: RunSpan | None = None


class JobRunner:
    """Runs claimed jobs under their own record."""

    def __init__(
        self,
        parts: Parts,
        store: Store,
        worker_id: int,
        processes: Processes | None = None,
        far: Far | None = None,
    ) -> None:
        self._parts = parts
        self._store = store
        self._worker_id = worker_id
        self._processes = processes
        self._far = far

    async def execute(self, job: Claimed, token: Cancellation) -> Finished:
        """Run it; how it ended, and what that means to its manifest, is the answer."""
        parts = self._parts
        try:
            train = parts.trains.get(job.train)
            codec = parts.parameters.of_input(train)
            value = self._input(codec, job.input or "null")
            elsewhere = reference_to(train) if train.options.cpu and self._processes is not None else None
        except TraxError as poison:
            return Finished(self._poisoned(job, poison), job.train)
        progress = self._opened(job, token)
        run = self._run(job, token, progress)
        run.secret_words = codec.secret_words(value)
        telemetry = parts.telemetry.now
        span = None if telemetry is None else telemetry.begun(run, worker_id=self._worker_id)
        try:
            with entered(run):
                if parts.hooks.hears_start(train):
                    await parts.hooks.started(self._store, Told(train, job.metadata_id, job.input))
                observer = self._observer(train, progress, span, is_here=not (elsewhere or self._far))
                if elsewhere or self._far:
                    doing = self._elsewhere(train, job, run, self._desk(run, progress, observer), elsewhere)
                else:
                    doing = train.attempt(
                        value, cancellation=token, external_id=job.external_id, on_junction=observer
                    )
                try:
                    outcome = await doing
                except asyncio.CancelledError:
                    outcome = Cancelled("its task was cancelled")
                outcome = hide_in_outcome(outcome, run.secret_words)
        finally:
            junctions = parts.notebook.end(progress)
            parts.notebook.close(progress)
        parts.odometer.ran(train.name, progress.seconds, waited=job.waited_seconds)
        if span is not None:
            span.stop(outcome)
        if isinstance(outcome, Failed):
            _say_failed(job, outcome)
        return self._finished(job, train, outcome, junctions, span)

    def _input(self, codec: Codec[Any], text: str) -> Any:
        try:
            return codec.decode(text)
        except SecretUnreadable:
            if self._far is None:
                raise
            return None  # its key is needed where it runs, and perhaps only there

    def _observer(
        self, train: Train[Any, Any], progress: RunProgress, span: RunSpan | None, *, is_here: bool
    ) -> Observer | None:
        observer = progress.enter if self._parts.settings.junction_progress else None
        return observer if span is None else span.observing(train, observer, progress.token, is_here=is_here)

    def _opened(self, job: Claimed, token: Cancellation) -> RunProgress:
        """Its page in the notebook, with what is to be kept of its input if that is less than all."""
        progress = self._parts.notebook.open(
            self._store, job.metadata_id, job.external_id, token, is_held=True
        )
        kept = job.input and self._parts.parameters.saved_input(job.input)
        if kept is not job.input:
            progress.replaced_input = (kept,)
        return progress

    def _run(self, job: Claimed, token: Cancellation, progress: RunProgress) -> Run:
        """The run as its own junctions see it."""
        return Run(
            metadata_id=job.metadata_id,
            external_id=job.external_id,
            train=job.train,
            manifest=job.manifest,
            attempt=job.attempt,
            scheduled_for=job.scheduled_for,
            cancellation=token,
            activator=self._parts.activating,
            reporter=progress.tell,
        )

    def _finished(
        self,
        job: Claimed,
        train: Train[Any, Any],
        outcome: Outcome[Any],
        junctions: str | None = None,
        span: RunSpan | None = None,
    ) -> Finished:
        is_heard = self._parts.hooks.hears(train, outcome)
        told = Told(train, job.metadata_id, job.input) if is_heard else None
        return Finished(self._ended(job, train, outcome, junctions), job.train, outcome, told, span)

    def failed(self, job: Claimed, error: BaseException) -> Finished:
        """The ending of a run whose own handling broke: the run fails, and nothing else does."""
        train = self._parts.trains.get(job.train)
        logger.error(
            "run %s of train %r broke off",
            job.metadata_id,
            job.train,
            exc_info=error,
            extra=_extra(job),
        )
        known = error if isinstance(error, Exception) else TraxError(f"{type(error).__name__}: {error}")
        failure = describe(known, train=train.name, external_id=job.external_id, junction=None)
        return self._finished(job, train, Failed(known, failure))

    def unwritable(self, finished: Finished, error: Exception) -> Finished:
        """A failure in the place of an ending that the database does not take."""
        instead = unwritable(finished.ended.ending, error)
        ended = finished.ended._replace(ending=instead, kind=EndKind.FAILURE, delay=None)
        return Finished(ended, finished.train, span=finished.span)

    def not_begun(self, job: Claimed, reason: str) -> Finished:
        """The ending of a run that was claimed and does not end here: it goes back to the queue."""
        return self._unrun(job, Interrupted(reason))

    def strayed(self, job: Held) -> Finished:
        """The ending of a run that is ours by its record only. It goes back, unless nobody wants it now."""
        if job.to_stop is CancelReason.REQUESTED:
            return self._unrun(job, Cancelled("cancelled by request"))
        return self._unrun(job, Interrupted("its worker never learned that it had taken it"))

    def _unrun(self, job: Claimed | Held, outcome: Cancelled | Interrupted) -> Finished:
        """Of a run that never began no hook hears."""
        return Finished(self._ended(job, self._parts.trains.get(job.train), outcome), job.train)

    def _elsewhere(
        self, train: Train[Any, Any], job: Claimed, run: Run, desk: Desk, reference: Reference | None
    ) -> Awaitable[Outcome[Any]]:
        """Far away, or in a process of its own; what the run asks for and tells is heard here."""
        if self._far is not None:
            return self._far.attempt(train, job.input or "null", run, desk)
        assert self._processes is not None  # noqa: S101 - asked before
        assert reference is not None  # noqa: S101
        facts = {name: getattr(run, name) for name in FACTS}
        work = Work(reference, job.input or "null", facts, logging.getLogger().getEffectiveLevel())
        return self._processes.attempt(work, run.cancellation, desk)

    def _desk(self, run: Run, progress: RunProgress, observer: Observer | None) -> Desk:
        """What is done here for a run that is executed elsewhere."""

        def activate(wanted: list[tuple[str, Any]], force: bool) -> int:  # noqa: FBT001 - as it was sent
            return self._parts.activating.blocking(run, wanted, force=force)

        entered = observer or progress.enter
        return {"activate": activate, "progress": progress.tell, "junction": entered, "log": logged}

    @property
    def is_observed(self) -> bool:
        """Whether anybody measures how runs go."""
        return self._parts.telemetry.now is not None

    async def observe(self, finished: Sequence[Finished]) -> None:
        """Tell how long they took, once their endings are written."""
        telemetry = self._parts.telemetry.now
        if telemetry is not None:
            spans = {one.ended.ending.metadata_id: one.span for one in finished}
            await telemetry.ended(self._store, spans)

    async def tell(self, finished: Finished) -> None:
        """Call the hooks, once the ending is written."""
        if finished.told is not None and finished.outcome is not None:
            await self._parts.hooks.ended(self._store, finished.told, finished.outcome)

    def _ended(
        self,
        job: Claimed | Held,
        train: Train[Any, Any],
        outcome: Outcome[Any],
        junctions: str | None = None,
    ) -> Ended:
        ending = ending_of(
            outcome,
            train,
            self._parts.parameters,
            metadata_id=job.metadata_id,
            worker_id=self._worker_id,
            junctions=junctions,
        )
        if isinstance(outcome, Done):
            return Ended(ending, job.external_id, EndKind.SUCCESS, job.manifest_id, job.attempt)
        return Ended(
            ending=ending,
            external_id=job.external_id,
            kind=kind_of(outcome, self._parts.settings),
            manifest_id=job.manifest_id,
            attempt=job.attempt,
            raised=raised(outcome),
            gives_up=gives_up(outcome, train),
            delay=delay_of(outcome),
        )

    def _poisoned(self, job: Claimed, poison: TraxError) -> Ended:
        """A train this server does not know, or an input its type refuses: no further try would help."""
        ending = Ending(
            metadata_id=job.metadata_id,
            worker_id=self._worker_id,
            state=State.FAILED,
            failure_exception=type(poison).__name__,
            failure_reason=str(poison),
        )
        return Ended(
            ending=ending,
            external_id=job.external_id,
            kind=EndKind.FAILURE,
            manifest_id=job.manifest_id,
            gives_up=True,
        )


def _say_failed(job: Claimed, failed: Failed) -> None:
    """For who reads the log of a server; the record says more, and the retry policy knows what follows."""
    what = f"{failed.failure.type}: {failed.failure.message}"
    logger.info("run %s of train %r failed: %s", job.metadata_id, job.train, what, extra=_extra(job))


def _extra(job: Claimed) -> dict[str, Any]:
    return {"metadata_id": job.metadata_id, "train": job.train, "attempt": job.attempt}


def logged(record: logging.LogRecord) -> None:
    """A line from another process, as if it had been written here."""
    known = logging.getLogger(record.name)
    if known.isEnabledFor(record.levelno):
        known.handle(record)
