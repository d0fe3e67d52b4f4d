"""A manifest that is deleted leaves no entry behind, whoever writes one meanwhile; no foreign key helps."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text
from tests.support.flow_manager import Yard
from tests.support.held import PATIENCE_SECONDS, Held, someone_waits

from trax import every
from trax.admin import activation, resolutions, runtime, triggers
from trax.admin.cycle import manage
from trax.admin.job_dispatcher import dispatch
from trax.admin.manifest_manager import Turn
from trax.dispatch.routing import Routing
from trax.errors import NotFound
from trax.store.dead_letters import Chosen
from trax.store.manifest_locks import lock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import ThreadPoolExecutor

    from trax.store import Connection

    Work = Callable[[Connection], Any]
    Writer = Callable[[Yard], Awaitable[Work]]

TEN = datetime(2027, 3, 1, 10, tzinfo=UTC)
FIVE_MINUTES = every(minutes=5)


@pytest.fixture
def h(postgres_url: str) -> Yard:
    h = Yard(postgres_url, TEN)
    h.schedule(h.job, "load", "load", FIVE_MINUTES, max_retries=1)
    return h


async def triggering(h: Yard) -> Work:
    return lambda connection: triggers.trigger(connection, "load", delay=None, now=h.now)


async def triggering_its_group(h: Yard) -> Work:
    group = (await h.manifest("load")).group
    return lambda connection: triggers.trigger_group(connection, group, now=h.now)


async def requeueing_its_letter(h: Yard) -> Work:
    chosen = Chosen([(await h.dead_letter("load")).id])
    return lambda connection: resolutions.requeue(connection, chosen, note=None, now=h.now)


async def waking_it(h: Yard) -> Work:
    parent = await h.app.manifests.schedule(h.job, "scan", "scan", FIVE_MINUTES)
    h.change_manifest("load", schedule_type="dormant_dependent", depends_on_id=parent.id)
    wanted, settings = [("load", "1")], h.app.parts.settings
    return lambda connection: activation.activate(connection, "scan", wanted, settings, force=True, now=h.now)


WRITERS = [triggering, triggering_its_group, requeueing_its_letter, waking_it]


def deleting(connection: Connection) -> None:
    runtime.delete(connection, "load")


def entries_of(h: Yard, manifest_id: int) -> int:
    query = text("SELECT count(*) FROM trax.work_queue WHERE manifest_id = :id")
    return h.store.read(lambda connection: connection.execute(query, {"id": manifest_id}).scalar_one())


@pytest.mark.parametrize("writer", WRITERS)
async def test_a_deletion_waits_for_whoever_writes_an_entry(
    h: Yard, threads: ThreadPoolExecutor, writer: Writer
) -> None:
    async with h:
        manifest_id = h.manifest_id("load")
        writing = Held(h, threads, await writer(h))

        deletion = threads.submit(h.store.run, deleting)
        someone_waits(h)
        assert writing.let_go(), "it has written an entry"
        deletion.result(PATIENCE_SECONDS)

        assert entries_of(h, manifest_id) == 0


@pytest.mark.parametrize("writer", WRITERS)
async def test_whoever_wants_to_write_an_entry_waits_for_a_deletion_and_writes_none(
    h: Yard, threads: ThreadPoolExecutor, writer: Writer
) -> None:
    async with h:
        manifest_id, work = h.manifest_id("load"), await writer(h)
        deletion = Held(h, threads, deleting)

        writing = threads.submit(h.store.run, work)
        someone_waits(h)
        deletion.let_go()

        with suppress(NotFound):
            writing.result(PATIENCE_SECONDS)
        assert entries_of(h, manifest_id) == 0


async def test_a_deletion_waits_for_a_manager_and_deletes_what_that_wrote(
    h: Yard, threads: ThreadPoolExecutor
) -> None:
    async with h:
        manifest_id = h.manifest_id("load")
        holder = Held(h, threads, lambda connection: lock(connection, [manifest_id]))
        managing = threads.submit(
            h.store.run, lambda connection: manage(connection, h.store, h.app.parts.settings, Turn())
        )
        someone_waits(h)

        deletion = threads.submit(h.store.run, deleting)
        holder.let_go()
        deletion.result(PATIENCE_SECONDS)

        managed = managing.result(PATIENCE_SECONDS)
        assert managed is not None
        assert len(managed.queued) == 1
        assert entries_of(h, manifest_id) == 0


def admitting(h: Yard) -> Work:
    return lambda connection: dispatch(connection, h.store, h.app.parts.settings, Routing())


def runs_of(h: Yard, manifest_id: int) -> int:
    query = text("SELECT count(*) FROM trax.metadata WHERE manifest_id = :id")
    return h.store.read(lambda connection: connection.execute(query, {"id": manifest_id}).scalar_one())


async def test_the_gate_waits_for_a_deletion_and_lets_nobody_in(h: Yard, threads: ThreadPoolExecutor) -> None:
    async with h:
        manifest_id = h.manifest_id("load")
        h.store.run(await triggering(h))
        deletion = Held(h, threads, deleting)

        visit = threads.submit(h.store.run, admitting(h))
        someone_waits(h)
        deletion.let_go()

        assert visit.result(PATIENCE_SECONDS).metadata_ids == []
        assert (entries_of(h, manifest_id), runs_of(h, manifest_id)) == (0, 0)


async def test_a_deletion_waits_for_the_gate_and_deletes_the_run_it_made(
    h: Yard, threads: ThreadPoolExecutor
) -> None:
    for_update = text("SELECT id FROM trax.manifest FOR UPDATE")
    async with h:
        manifest_id = h.manifest_id("load")
        h.store.run(await triggering(h))
        holder = Held(h, threads, lambda connection: connection.execute(for_update).all())
        visit = threads.submit(h.store.run, admitting(h))  # its new run refers to the manifest
        someone_waits(h)

        deletion = threads.submit(h.store.run, deleting)
        someone_waits(h, others=2)
        holder.let_go()
        deletion.result(PATIENCE_SECONDS)

        assert len(visit.result(PATIENCE_SECONDS).metadata_ids) == 1
        assert (entries_of(h, manifest_id), runs_of(h, manifest_id)) == (0, 0)
