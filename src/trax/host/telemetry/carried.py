"""The trace that a queued entry belongs to, carried in its external id.

The id is made by whoever queues, is shared by the entry and every run it leads to, and means nothing to
others. So a trace goes from the caller to the worker without a column, a statement or a look-up of its own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

if TYPE_CHECKING:
    from opentelemetry.trace import Span

CARRIED: Final = re.compile(r"^[0-9a-f]{32}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$")


def carrying(external_id: str, span: Span) -> str:
    """The id with the trace behind it, in the words of a `traceparent`."""
    context = span.get_span_context()
    if not context.is_valid:
        return external_id
    return f"{external_id}-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def context_of(external_id: str) -> Context:
    """Where a run with this id belongs: under the span that queued it, or in a trace of its own."""
    found = CARRIED.match(external_id)
    if found is None:
        return Context()
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    parent = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return set_span_in_context(NonRecordingSpan(parent), Context())
