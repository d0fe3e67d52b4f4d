"""Two managers at once, and a manager beside the end of a run. Real connections, real locks."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import select, text, update
from tests.support.manager_harness import ManagerHarness
from tests.support.open_transaction import TIMEOUT_SECONDS, OpenTransaction, wait_for_lock_waiter
from tests.support.results import run_result
from tests.support.running import run_queued

from trax import Item, every
from trax.engine import dead_letters, trigger
from trax.engine.finish import apply_results
from trax.engine.manifest_manager import ManagerInput, run_manager_cycle
from trax.records import Origin, State
from trax.records.result import ResultKind
from trax.records.states import QueueStatus
from trax.store.dead_letters import LetterSelection
from trax.store.manifests import manifest_results, manifest_rows
from trax.store.manifests.manifest_rows import lock
from trax.store.schema import tables

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import ThreadPoolExecutor

    from trax.store import Connection

TEN = datetime(2027, 3, 1, 10, tzinfo=UTC)
FIVE_MINUTES = every(minutes=5)


def cycle(h: ManagerHarness) -> Callable[[Connection], Any]:
    return lambda connection: run_manager_cycle(connection, h.store, h.app.context.settings, ManagerInput())


def ending(h: ManagerHarness, external_id: str, run: int, kind: ResultKind) -> Callable[[Connection], None]:
    """What a worker writes when a run ends: the record, then its manifest."""
    state = State.COMPLETED if kind is ResultKind.SUCCESS else State.FAILED
    manifest_id = h.manifest_id(external_id)

    def finish(connection: Connection) -> None:
        metadata = tables(connection).metadata
        failure = {"failure_exception": "RuntimeError"} if state is State.FAILED else {}
        ended = update(metadata).where(metadata.c.id == run).values(state=state, ended_at=h.now, **failure)
        connection.execute(ended)
        result = run_result(run, state, kind=kind, manifest_id=manifest_id)
        apply_results(connection, [result], h.app.context.settings, now=h.now)

    return finish


def insert_triggered_run(h: ManagerHarness, external_id: str) -> int:
    """A run in progress on a live worker, with its entry."""
    entry = h.insert_entry(external_id, origin="trigger", status=QueueStatus.DISPATCHED, dispatched_at=h.now)
    run = h.insert_run(external_id, entry_id=entry, worker_id=h.insert_worker(heartbeat_at=h.now))

    def link(connection: Connection) -> None:
        metadata, queue = tables(connection).metadata, tables(connection).work_queue
        connection.execute(update(queue).where(queue.c.id == entry).values(metadata_id=run))
        of_entry = select(queue.c.external_id).where(queue.c.id == entry).scalar_subquery()
        connection.execute(update(metadata).where(metadata.c.id == run).values(external_id=of_entry))

    h.store.run(link)
    return run


async def test_two_managers_do_not_wait_for_each_other_and_one_manages(
    postgres_url: str, threads: ThreadPoolExecutor
) -> None:
    h = ManagerHarness(postgres_url, TEN)
    h.schedule_many({f"{number}": "x" for number in range(20)})
    async with h:
        holder = OpenTransaction(h, threads, lambda connection: lock(connection, [h.manifest_id("many-0")]))
        first = threads.submit(h.store.run, cycle(h))
        wait_for_lock_waiter(h)

        assert h.store.run(cycle(h)) is None, "it came back although the first has not committed"

        holder.let_go()
        assert len(first.result(TIMEOUT_SECONDS).queued) == 20
        assert len(h.queued()) == 20


async def test_many_managers_at_once_write_one_entry_for_each(
    postgres_url: str, threads: ThreadPoolExecutor
) -> None:
    h = ManagerHarness(postgres_url, TEN)
    h.schedule_many({f"{number}": "x" for number in range(50)})
    async with h:
        cycles = [threads.submit(h.store.run, cycle(h)) for _ in range(12)]
        for one in cycles:
            one.result(TIMEOUT_SECONDS)

        entries = Counter(entry.manifest for entry in h.queued())
        assert (len(entries), set(entries.values())) == (50, {1})


async def test_a_manager_waits_for_the_end_of_a_run_and_sees_its_result(
    postgres_url: str, threads: ThreadPoolExecutor
) -> None:
    """It was asked to look while the run was active, and must not take it for active still."""
    h = ManagerHarness(postgres_url, TEN)
    h.schedule(h.job, "sync", "sync", FIVE_MINUTES)
    async with h:
        run = insert_triggered_run(h, "sync")
        finish = OpenTransaction(h, threads, ending(h, "sync", run, ResultKind.FAILURE))

        managing = threads.submit(h.store.run, cycle(h))
        wait_for_lock_waiter(h)
        finish.let_go()

        assert len(managing.result(TIMEOUT_SECONDS).queued) == 1
        assert h.entry("sync").origin is Origin.RETRY


async def test_a_success_of_the_parent_is_not_lost_between_a_manager_and_the_end_of_a_run(
    postgres_url: str, threads: ThreadPoolExecutor
) -> None:
    h = ManagerHarness(postgres_url, TEN)
    h.schedule(h.job, "parent", "parent", FIVE_MINUTES).include(h.job, "child", "child")
    async with h:
        await h.run_until_idle()
        await h.advance(minutes=5)
        await h.manage()
        run = insert_triggered_run(h, "child")
        await run_queued(h)  # the parent succeeds, and has the manager look at the child
        finish = OpenTransaction(h, threads, ending(h, "child", run, ResultKind.SUCCESS))

        managing = threads.submit(h.store.run, cycle(h))
        wait_for_lock_waiter(h)
        finish.let_go()

        assert len(managing.result(TIMEOUT_SECONDS).queued) == 1
        assert h.entry("child").origin is Origin.SCHEDULE


async def test_the_end_of_a_run_waits_for_a_manager_and_changes_what_that_left(
    postgres_url: str, threads: ThreadPoolExecutor
) -> None:
    h = ManagerHarness(postgres_url, TEN)
    h.schedule(h.job, "sync", "sync", FIVE_MINUTES, max_retries=1)
    async with h:
        run = insert_triggered_run(h, "sync")
        manager = OpenTransaction(h, threads, cycle(h))  # sees an active run and lets the manifest rest

        finishing = threads.submit(h.store.run, ending(h, "sync", run, ResultKind.FAILURE))
        wait_for_lock_waiter(h)
        manager.let_go()
        finishing.result(TIMEOUT_SECONDS)

        assert (await h.manifest("sync")).next_due_at == TEN
        assert len((await h.cycle("manifest_manager")).dead_letters) == 1


async def test_the_end_of_a_run_locks_dependents_in_the_order_of_their_ids(
    postgres_url: str, threads: ThreadPoolExecutor
) -> None:
    """Else it could hold one that a manager wants, and want a dependent that the manager holds."""
    h = ManagerHarness(postgres_url, TEN)
    h.schedule(h.job, "parent", "parent", FIVE_MINUTES).include(h.job, "child", "child")
    h.schedule(h.job, "last", "last", FIVE_MINUTES)
    async with h:
        parent, child, last = (h.manifest_id(name) for name in ("parent", "child", "last"))
        holding = OpenTransaction(
            h, threads, lambda connection: manifest_results.reset_failures(connection, [child])
        )
        ends = [run_result(one, manifest_id=one) for one in (last, parent)]

        finishing = threads.submit(
            h.store.run, lambda connection: apply_results(connection, ends, h.app.context.settings, now=TEN)
        )
        wait_for_lock_waiter(h)

        assert h.store.run(_is_free, last), "what comes after the child must not be locked before it"
        holding.let_go()
        finishing.result(TIMEOUT_SECONDS)


def _is_free(connection: Connection, manifest_id: int) -> bool:
    query = text("SELECT id FROM trax.manifest WHERE id = :id FOR UPDATE SKIP LOCKED")
    return connection.execute(query, {"id": manifest_id}).scalar() is not None


async def test_two_runs_that_wake_the_same_dormant_dependent_write_one_entry(
    postgres_url: str, threads: ThreadPoolExecutor
) -> None:
    h = ManagerHarness(postgres_url, TEN)
    root = h.schedule(h.job, "scan", "scan", FIVE_MINUTES)
    root.include_many(h.job, "load", [Item(one, one, depends_on="scan") for one in "ab"], dormant=True)

    def waking(*names: str) -> Callable[[Connection], int]:
        wanted = [(name, '"now"') for name in names]
        settings = h.app.context.settings
        return lambda connection: trigger.activate(connection, "scan", wanted, settings, force=False, now=TEN)

    async with h:
        first = OpenTransaction(h, threads, waking("load-a", "load-b"))
        second = threads.submit(h.store.run, waking("load-b", "load-a"))
        wait_for_lock_waiter(h)

        assert first.let_go() == 2
        assert second.result(TIMEOUT_SECONDS) == 0
        assert len(h.queued()) == 2


async def test_a_manager_beside_a_requeue_writes_no_second_entry(
    postgres_url: str, threads: ThreadPoolExecutor
) -> None:
    h = ManagerHarness(postgres_url, TEN)
    h.schedule(h.job, "sync", "sync", FIVE_MINUTES, max_retries=1)
    async with h:
        letter = await h.dead_letter("sync")
        await h.app.manifests.enable("sync")  # has the manager look

        def requeue(connection: Connection) -> list[int]:
            return dead_letters.requeue(connection, LetterSelection([letter.id]), note=None, now=h.now)

        requeueing = OpenTransaction(h, threads, requeue)
        managing = threads.submit(h.store.run, cycle(h))
        wait_for_lock_waiter(h)
        assert requeueing.let_go() == [letter.id]
        managing.result(TIMEOUT_SECONDS)

        assert [entry.origin for entry in h.queued()] == [Origin.REQUEUE]


async def locks_in_order(
    h: ManagerHarness,
    threads: ThreadPoolExecutor,
    work: Callable[[Connection], Any],
    *,
    first: str,
    second: str,
) -> None:
    """Hold the manifest with the lower id: whoever wants both has to wait for it with empty hands."""
    ids = {name: h.manifest_id(name) for name in (first, second)}
    assert ids[first] < ids[second]
    holder = OpenTransaction(h, threads, lambda connection: lock(connection, [ids[first]]))

    blocked = threads.submit(h.store.run, work)
    wait_for_lock_waiter(h)

    taken = text("SELECT id FROM trax.manifest WHERE id = :id FOR UPDATE NOWAIT")
    h.store.run(lambda connection: connection.execute(taken, {"id": ids[second]}).scalar_one())
    holder.let_go()
    blocked.result(TIMEOUT_SECONDS)


async def test_marking_a_group_due_locks_its_manifests_in_order(
    postgres_url: str, threads: ThreadPoolExecutor
) -> None:
    h = ManagerHarness(postgres_url, TEN)
    h.schedule_many({"a": "x", "b": "x"})
    async with h:
        h.change_manifest("many-a", next_due_at=None)  # moves its row behind the other one, in every index
        group_id = (await h.app.groups.get("many")).id

        await locks_in_order(
            h,
            threads,
            lambda connection: manifest_rows.mark_group_due(connection, group_id, now=h.now),
            first="many-a",
            second="many-b",
        )


async def test_enabling_a_manifest_locks_it_and_its_dependents_in_order(
    postgres_url: str, threads: ThreadPoolExecutor
) -> None:
    h = ManagerHarness(postgres_url, TEN)
    h.schedule(h.job, "child", "x", FIVE_MINUTES)
    h.schedule(h.job, "parent", "x", FIVE_MINUTES, enabled=False)
    async with h:
        h.change_manifest("child", schedule_type="dependent", depends_on_id=h.manifest_id("parent"))

        await locks_in_order(
            h,
            threads,
            lambda connection: manifest_rows.set_enabled(connection, "parent", enabled=True, now=h.now),
            first="child",
            second="parent",
        )

        assert (await h.manifest("parent")).enabled
        assert (await h.manifest("child")).next_due_at == h.now
