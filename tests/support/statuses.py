"""How things stand when nothing is going on."""

from __future__ import annotations

from datetime import UTC, datetime

from trax.records.status import Status

NOTHING_WRONG = Status(
    now=datetime(2027, 3, 1, 12, tzinfo=UTC),
    ready=0,
    delayed=0,
    pending=0,
    pending_local=0,
    running=0,
    failed_last_hour=0,
    dead_letters=0,
    manifests_enabled=0,
    manifests_disabled=0,
    next_due_at=None,
    next_delayed_at=None,
    ready_since=None,
    workers=(),
)
