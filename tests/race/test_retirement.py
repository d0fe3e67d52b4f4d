"""A manifest that is retired leaves no entry in the queue, whoever writes one; no foreign key helps.

And a start does not undo what an operator changes in the same moment.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text
from tests.support.manager_harness import ManagerHarness
from tests.support.open_transaction import TIMEOUT_SECONDS, OpenTransaction, wait_for_lock_waiter

from trax import every
from trax.engine import dead_letters, schedule, trigger
from trax.engine.job_dispatcher import run_dispatch_cycle
from trax.engine.manifest_manager import ManagerInput, run_manager_cycle
from trax.engine.routing import Routing
from trax.errors import Conflict
from trax.schedule.builder import Declarations
from trax.server import start as start_server
from trax.store.dead_letters import LetterSelection
from trax.store.manifests import manifest_rows
from trax.store.manifests.manifest_rows import lock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import ThreadPoolExecutor

    from trax.store import Connection

    Work = Callable[[Connection], Any]
    Writer = Callable[[ManagerHarness], Awaitable[Work]]

TEN = datetime(2027, 3, 1, 10, tzinfo=UTC)
LATER = TEN + timedelta(minutes=5, seconds=42)
FIVE_MINUTES = every(minutes=5)


@pytest.fixture
def h(postgres_url: str) -> ManagerHarness:
    h = ManagerHarness(postgres_url, TEN)
    h.schedule(h.job, "load", "load", FIVE_MINUTES, max_retries=1)
    return h


async def triggering(h: ManagerHarness) -> Work:
    return lambda connection: trigger.trigger(connection, "load", delay=None, now=h.now)


async def triggering_its_group(h: ManagerHarness) -> Work:
    group = (await h.manifest("load")).group
    return lambda connection: trigger.trigger_group(connection, group, now=h.now)


async def requeueing_its_letter(h: ManagerHarness) -> Work:
    chosen = LetterSelection([(await h.dead_letter("load")).id])
    return lambda connection: dead_letters.requeue(connection, chosen, note=None, now=h.now)


async def waking_it(h: ManagerHarness) -> Work:
    parent = await h.app.manifests.schedule(h.job, "scan", "scan", FIVE_MINUTES)
    h.change_manifest("load", schedule_type="dormant_dependent", depends_on_id=parent.id)
    wanted, settings = [("load", "1")], h.app.context.settings
    return lambda connection: trigger.activate(connection, "scan", wanted, settings, force=True, now=h.now)


REFUSED = [triggering, triggering_its_group, waking_it]
WRITERS = [*REFUSED, requeueing_its_letter]


def retiring(connection: Connection) -> None:
    schedule.delete(connection, "load", now=TEN)


def entries_of(h: ManagerHarness, manifest_id: int) -> int:
    query = text("SELECT count(*) FROM trax.work_queue WHERE manifest_id = :id AND status = 'queued'")
    return h.store.read(lambda connection: connection.execute(query, {"id": manifest_id}).scalar_one())


@pytest.mark.parametrize("writer", WRITERS)
async def test_a_retirement_waits_for_a_transaction_that_writes_an_entry(
    h: ManagerHarness, threads: ThreadPoolExecutor, writer: Writer
) -> None:
    async with h:
        manifest_id = h.manifest_id("load")
        writing = OpenTransaction(h, threads, await writer(h))

        retirement = threads.submit(h.store.run, retiring)
        wait_for_lock_waiter(h)
        assert writing.let_go(), "it has written an entry"
        retirement.result(TIMEOUT_SECONDS)

        assert entries_of(h, manifest_id) == 0


@pytest.mark.parametrize("writer", REFUSED)
async def test_a_writer_waits_for_a_retirement_and_writes_no_entry(
    h: ManagerHarness, threads: ThreadPoolExecutor, writer: Writer
) -> None:
    async with h:
        manifest_id, work = h.manifest_id("load"), await writer(h)
        retirement = OpenTransaction(h, threads, retiring)

        writing = threads.submit(h.store.run, work)
        wait_for_lock_waiter(h)
        retirement.let_go()

        with suppress(Conflict):
            writing.result(TIMEOUT_SECONDS)
        assert entries_of(h, manifest_id) == 0


async def test_a_retirement_waits_for_a_manager_and_withdraws_what_that_wrote(
    h: ManagerHarness, threads: ThreadPoolExecutor
) -> None:
    async with h:
        manifest_id = h.manifest_id("load")
        holder = OpenTransaction(h, threads, lambda connection: lock(connection, [manifest_id]))
        managing = threads.submit(
            h.store.run,
            lambda connection: run_manager_cycle(connection, h.store, h.app.context.settings, ManagerInput()),
        )
        wait_for_lock_waiter(h)

        retirement = threads.submit(h.store.run, retiring)
        holder.let_go()
        retirement.result(TIMEOUT_SECONDS)

        managed = managing.result(TIMEOUT_SECONDS)
        assert managed is not None
        assert len(managed.queued) == 1
        assert entries_of(h, manifest_id) == 0


def admitting(h: ManagerHarness) -> Work:
    return lambda connection: run_dispatch_cycle(connection, h.store, h.app.context.settings, Routing())


def runs_of(h: ManagerHarness, manifest_id: int) -> int:
    query = text("SELECT count(*) FROM trax.metadata WHERE manifest_id = :id")
    return h.store.read(lambda connection: connection.execute(query, {"id": manifest_id}).scalar_one())


async def test_the_gate_waits_for_a_retirement_and_admits_no_run(
    h: ManagerHarness, threads: ThreadPoolExecutor
) -> None:
    async with h:
        manifest_id = h.manifest_id("load")
        h.store.run(await triggering(h))
        retirement = OpenTransaction(h, threads, retiring)

        visit = threads.submit(h.store.run, admitting(h))
        wait_for_lock_waiter(h)
        retirement.let_go()

        assert visit.result(TIMEOUT_SECONDS).metadata_ids == []
        assert (entries_of(h, manifest_id), runs_of(h, manifest_id)) == (0, 0)


async def test_a_retirement_waits_for_the_gate_and_the_run_continues(
    h: ManagerHarness, threads: ThreadPoolExecutor
) -> None:
    for_update = text("SELECT id FROM trax.manifest FOR UPDATE")
    async with h:
        manifest_id = h.manifest_id("load")
        h.store.run(await triggering(h))
        holder = OpenTransaction(h, threads, lambda connection: connection.execute(for_update).all())
        visit = threads.submit(h.store.run, admitting(h))  # its new run refers to the manifest
        wait_for_lock_waiter(h)

        retirement = threads.submit(h.store.run, retiring)
        wait_for_lock_waiter(h, others=2)
        holder.let_go()
        retirement.result(TIMEOUT_SECONDS)

        assert len(visit.result(TIMEOUT_SECONDS).metadata_ids) == 1
        assert (entries_of(h, manifest_id), runs_of(h, manifest_id)) == (0, 1)


def disabling(connection: Connection) -> None:
    manifest_rows.set_enabled(connection, "load", enabled=False, now=TEN)


def planning_its_next_run(connection: Connection) -> None:
    planned = {"next_scheduled_run": LATER, "next_due_at": LATER}
    connection.execute(
        text("UPDATE trax.manifest SET next_scheduled_run = :next_scheduled_run, next_due_at = :next_due_at"),
        planned,
    )


async def test_a_start_that_changes_a_manifest_leaves_what_others_change_meanwhile(
    h: ManagerHarness, threads: ThreadPoolExecutor
) -> None:
    code = Declarations()
    code.schedule(h.job, "load", "load", FIVE_MINUTES, max_retries=7, timeout=timedelta(minutes=1))
    settings = h.app.context.settings

    async with h:
        operator = OpenTransaction(h, threads, disabling)

        start = threads.submit(
            h.store.run,
            lambda connection: start_server.start_up(connection, h.store, code.timetable(), settings),
        )
        wait_for_lock_waiter(h)
        operator.let_go()
        start.result(TIMEOUT_SECONDS)

        load = await h.manifest("load")
        assert (load.enabled, load.max_retries, load.timeout) == (False, 7, timedelta(minutes=1))


async def test_a_start_leaves_the_moment_that_the_end_of_a_run_sets_meanwhile(
    h: ManagerHarness, threads: ThreadPoolExecutor
) -> None:
    code = Declarations()
    code.schedule(h.job, "load", "load", FIVE_MINUTES, max_retries=1, priority=9)
    settings = h.app.context.settings

    async with h:
        ending = OpenTransaction(h, threads, planning_its_next_run)

        start = threads.submit(
            h.store.run,
            lambda connection: start_server.start_up(connection, h.store, code.timetable(), settings),
        )
        wait_for_lock_waiter(h)
        ending.let_go()
        start.result(TIMEOUT_SECONDS)

        load = await h.manifest("load")
        assert (load.priority, load.next_due_at) == (9, LATER)
        assert await h.manage() == []
