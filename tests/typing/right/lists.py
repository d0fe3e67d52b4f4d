"""What the lists of an app look like to a type checker."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import assert_type

from trax import Manifest, Metadata, State, Trax
from trax.records.listing import Count, RecordPage
from trax.worker.entry import QueuedEntry

app = Trax("memory://")


async def read() -> None:
    since = datetime(2027, 3, 1, tzinfo=UTC)
    assert_type(await app.executions.list(state="failed", limit=50), list[Metadata])
    assert_type(await app.executions.page(state=State.FAILED, since=since, before=7), RecordPage[Metadata])
    assert_type(await app.executions.count(quick=True, admin=True), Count)
    assert_type(await app.work_queue.list(status=None, origin="retry", brief=True), list[QueuedEntry])
    assert_type(await app.manifests.page(after="sync", retired=None), RecordPage[Manifest])
    await app.logs.list(text="late", metadata_id=7)
    await app.dead_letters.count(manifest="sync")
    await app.audit.list(actor="olga", after=7)
    await app.sessions.page(user="olga")
    await app.groups.list(before="etl")
