"""Trace context in the external id of an entry.

The id is generated when the job is enqueued, is shared by the entry and all its runs, and is opaque to
others. So the trace reaches the worker without an extra column or query.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

if TYPE_CHECKING:
    from opentelemetry.trace import Span

ID_WITH_TRACE: Final = re.compile(r"^[0-9a-f]{32}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$")


def add_trace(external_id: str, span: Span) -> str:
    """Append the trace context to the id, in the fields of a `traceparent`."""
    context = span.get_span_context()
    if not context.is_valid:
        return external_id
    return f"{external_id}-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def context_of(external_id: str) -> Context:
    """The parent context of a run with this id: the span that enqueued it, or a new trace."""
    found = ID_WITH_TRACE.match(external_id)
    if found is None:
        return Context()
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    parent = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return set_span_in_context(NonRecordingSpan(parent), Context())
