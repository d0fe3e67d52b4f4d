"""A listener for the telemetry of an app, which keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from trax import Trax


class Listener:
    """The spans that have ended, and the measurements so far."""

    def __init__(self, app: Trax) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        meters = MeterProvider([self._reader], shutdown_on_exit=False)
        app.context.telemetry.use(self.tracers, meters)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def forget(self) -> None:
        self._exporter.clear()

    def measured(self, name: str) -> dict[tuple[Any, ...], Any]:
        """What an instrument shows, by its attributes' values: a number, or of a histogram count and sum."""
        shown: dict[tuple[Any, ...], Any] = {}
        for metric in self._metrics():
            for point in metric.data.data_points if metric.name == name else ():
                value = (point.count, point.sum) if hasattr(point, "bucket_counts") else point.value
                shown[tuple(dict[str, Any](point.attributes or {}).values())] = value
        return shown

    def _metrics(self) -> list[Any]:
        data = cast("Any", self._reader.get_metrics_data())
        return [
            metric
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]


def parent_of(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent else None


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id
