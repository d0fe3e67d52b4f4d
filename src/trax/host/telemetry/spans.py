"""Spans of a run and its junctions."""

from __future__ import annotations

from contextlib import contextmanager
from time import time_ns
from typing import TYPE_CHECKING, Any

from opentelemetry import context as contexts
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

from trax.host.telemetry.carried import context_of
from trax.host.telemetry.harmless import log_errors
from trax.train import Cancelled, Done, Failed, Interrupted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Mapping

    from opentelemetry.trace import Span, Tracer

    from trax.store.run_times import RunTimes
    from trax.train import Cancellation, Outcome, Run, Train
    from trax.train.journey import Observer


class RunSpan:
    """The span of one run, from its start until its result is written.

    It is the current span in the code of the run, and so is the span of the current junction: spans of
    instrumented libraries become their children.
    """

    __slots__ = ("_context", "_ended_at", "_is_over", "_junction", "_span", "_token", "_tracer")

    def __init__(self, tracer: Tracer, run: Run, *, worker_id: int | None) -> None:
        """The parent of a queued run is the span that enqueued it; of `app.run`, the caller's span."""
        is_queued = worker_id is not None
        self._tracer = tracer
        self._span = tracer.start_span(
            run.train,
            context=context_of(run.external_id) if is_queued else None,
            kind=SpanKind.CONSUMER if is_queued else SpanKind.INTERNAL,
            attributes=without_none(
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

    def observer(
        self,
        train: Train[Any, Any],
        next_observer: Observer | None,
        token: Cancellation,
        *,
        is_here: bool = True,
    ) -> Observer | None:
        """An observer that starts a span for each junction, unless the run is being stopped.

        A train of one junction needs no extra span. With `is_here` the observer is called in the context of
        the junction, so its span becomes current there.
        """
        if len(train.plan.steps) == 1:
            return next_observer

        def observe(junction: str) -> Awaitable[None] | None:
            first = None if next_observer is None else next_observer(junction)
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
        """Restore the previous context; call it in the context where the span was created."""
        contexts.detach(self._token)

    @log_errors
    def stop(self, outcome: Outcome[Any]) -> None:
        """Note the outcome and end time; the span itself ends when the result is written."""
        self._ended_at = at = time_ns()
        for span in (self._junction, self._span):
            if span is not None:
                _record_outcome(span, outcome)
        self._end_junction(at)

    @log_errors
    def end(self, times: RunTimes | None) -> None:
        """End the span after the result is written; `times` is None if it is not known."""
        if self._is_over:
            return
        self._is_over = True
        if times is not None:
            self._span.set_attributes(without_none({"trax.group": times.group, "trax.state": times.state}))
        self._span.end(self._ended_at)

    @log_errors
    def _begin(self, junction: str, *, is_here: bool) -> None:
        at = time_ns()
        self._end_junction(at)
        self._junction = self._tracer.start_span(
            junction, context=self._context, attributes={"trax.junction": junction}, start_time=at
        )
        if is_here:
            # Never detached: the context ends with the run, or `leave` restores the previous one.
            contexts.attach(set_span_in_context(self._junction, self._context))

    def _end_junction(self, at: int) -> None:
        span, self._junction = self._junction, None
        if span is not None:
            span.end(at)


@contextmanager
def span_scope(span: Span) -> Generator[None]:
    """Make this the current span in the block; end it afterwards and record an error of the block."""
    token = contexts.attach(set_span_in_context(span))
    try:
        yield
    except BaseException as error:
        _fail(span, error)
        raise
    finally:
        contexts.detach(token)
        _end(span)


def without_none(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that have a value."""
    return {name: value for name, value in attributes.items() if value is not None}


@log_errors
def _fail(span: Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))


@log_errors
def _end(span: Span) -> None:
    span.end()


def _record_outcome(span: Span, outcome: Outcome[Any]) -> None:
    match outcome:
        case Done():
            span.set_status(Status(StatusCode.OK))
        case Failed(error, failure):
            attributes = {"exception.message": failure.message, "exception.stacktrace": failure.stack_trace}
            span.record_exception(error, attributes)
            span.set_status(Status(StatusCode.ERROR, f"{failure.type}: {failure.message}"))
        case Cancelled(reason) | Interrupted(reason):
            span.add_event("cancelled", {"trax.reason": reason})
