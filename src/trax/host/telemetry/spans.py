"""The span of a run, and those of the junctions it passes."""

from __future__ import annotations

from contextlib import contextmanager
from time import time_ns
from typing import TYPE_CHECKING, Any

from opentelemetry import context as contexts
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

from trax.host.telemetry.carried import context_of
from trax.host.telemetry.harmless import harmless
from trax.train import Cancelled, Done, Failed, Interrupted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Mapping

    from opentelemetry.trace import Span, Tracer

    from trax.store.run_times import RunTimes
    from trax.train import Cancellation, Outcome, Run, Train
    from trax.train.journey import Observer


class RunSpan:
    """One run, from its begin until its end is written down.

    It is current in the code of the run, and so is the span of the junction it is in: what an instrumented
    library tells there finds its place below them.
    """

    __slots__ = ("_context", "_ended_at", "_is_over", "_junction", "_span", "_token", "_tracer")

    def __init__(self, tracer: Tracer, run: Run, *, worker_id: int | None) -> None:
        """A queued run belongs where it was queued; one that is run here and now, to its caller."""
        is_queued = worker_id is not None
        self._tracer = tracer
        self._span = tracer.start_span(
            run.train,
            context=context_of(run.external_id) if is_queued else None,
            kind=SpanKind.CONSUMER if is_queued else SpanKind.INTERNAL,
            attributes=given(
                {
                    "trax.train": run.train,
                    "trax.metadata_id": run.metadata_id,
                    "trax.external_id": run.external_id,
                    "trax.manifest": run.manifest,
                    "trax.attempt": run.attempt,
                    "trax.worker": worker_id,
                }
            ),
        )
        self._context = set_span_in_context(self._span, contexts.Context() if is_queued else None)
        self._token = contexts.attach(self._context)
        self._junction: Span | None = None
        self._ended_at: int | None = None
        self._is_over = False

    def observing(
        self, train: Train[Any, Any], then: Observer | None, token: Cancellation, *, is_here: bool = True
    ) -> Observer | None:
        """An observer of junctions that begins a span for each one, unless the run is to stop before it.

        A single junction is the run, and needs none. With `is_here` the observer is called where the junction
        runs, so that its span can be made current there.
        """
        if len(train.plan.steps) == 1:
            return then

        def observe(junction: str) -> Awaitable[None] | None:
            first = None if then is None else then(junction)
            if first is not None:
                return after(first, junction)
            begin(junction)
            return None

        async def after(first: Awaitable[None], junction: str) -> None:
            await first
            begin(junction)

        def begin(junction: str) -> None:
            if not token.requested:
                self._begin(junction, is_here=is_here)

        return observe

    def leave(self) -> None:
        """What was current before is again; call it where the span was made."""
        contexts.detach(self._token)

    @harmless
    def stop(self, outcome: Outcome[Any]) -> None:
        """The run has ended; its span ends with this moment, once its end is written down."""
        self._ended_at = at = time_ns()
        for span in (self._junction, self._span):
            if span is not None:
                _tell(span, outcome)
        self._end_junction(at)

    @harmless
    def end(self, times: RunTimes | None) -> None:
        """Its end is written down, as `times` says; None when that is not known."""
        if self._is_over:
            return
        self._is_over = True
        if times is not None:
            self._span.set_attributes(given({"trax.group": times.group, "trax.state": times.state}))
        self._span.end(self._ended_at)

    @harmless
    def _begin(self, junction: str, *, is_here: bool) -> None:
        at = time_ns()
        self._end_junction(at)
        self._junction = self._tracer.start_span(
            junction, context=self._context, attributes={"trax.junction": junction}, start_time=at
        )
        if is_here:
            # Never detached: the context of the run ends with it, or `leave` brings back what was before.
            contexts.attach(set_span_in_context(self._junction, self._context))

    def _end_junction(self, at: int) -> None:
        span, self._junction = self._junction, None
        if span is not None:
            span.end(at)


@contextmanager
def current(span: Span) -> Generator[None]:
    """Make this the span of the code in the block; it ends with it, and tells what the block raised."""
    token = contexts.attach(set_span_in_context(span))
    try:
        yield
    except BaseException as error:
        _fail(span, error)
        raise
    finally:
        contexts.detach(token)
        _end(span)


def given(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Without those that have no value."""
    return {name: value for name, value in attributes.items() if value is not None}


@harmless
def _fail(span: Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))


@harmless
def _end(span: Span) -> None:
    span.end()


def _tell(span: Span, outcome: Outcome[Any]) -> None:
    match outcome:
        case Done():
            span.set_status(Status(StatusCode.OK))
        case Failed(error, failure):
            said = {"exception.message": failure.message, "exception.stacktrace": failure.stack_trace}
            span.record_exception(error, said)
            span.set_status(Status(StatusCode.ERROR, f"{failure.type}: {failure.message}"))
        case Cancelled(reason) | Interrupted(reason):
            span.add_event("cancelled", {"trax.reason": reason})
