from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from trax import Metadata, NotFound, Trax, every
from trax.errors import StoreUnavailable, UnknownTrain
from trax.records import State
from trax.remote.inline import Inline
from trax.store.runs import claim
from trax.store.schema import tables
from trax.testing import Harness
from trax.worker import pool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trax import Train
    from trax.remote.receiver import Receiver
    from trax.store import Connection


class Nobody:
    """Takes everything and does nothing."""

    name = "nobody"

    async def submit(self, batch: Any) -> None: ...


class ReceiverSetup:
    """An app whose runs wait to be taken up by hand."""

    def __init__(self, app: Trax) -> None:
        self.app = app
        self.h = Harness(app)
        self.ran: list[int] = []
        app.submitters.default = Nobody()

        @app.train
        async def work(number: int) -> int:
            self.ran.append(number)
            if number < 0:
                raise ValueError(number)
            return number

        self.work = work

    async def handed_over(self, train: Train[Any, Any], value: Any) -> Metadata:
        await self.app.queue(train, value)
        await self.h.cycle("job_dispatcher")
        await self.h.cycle("hand_over")
        return (await self.app.executions.list())[0]


@pytest.fixture
async def setup(url: str) -> AsyncGenerator[ReceiverSetup]:
    setup = ReceiverSetup(Trax(url, max_active_jobs=None))
    async with asyncio.timeout(60), setup.h:
        yield setup


async def test_a_run_claimed_by_a_receiver_runs_under_its_own_record(setup: ReceiverSetup) -> None:
    run = await setup.handed_over(setup.work, 7)

    async with setup.app.receiver() as receiver:
        assert await receiver.claim_by_id(run.id)
        await receiver.wait_until_idle()

    (record,) = await setup.app.executions.list()
    assert (record.id, record.state, record.output) == (run.id, State.COMPLETED, 7)
    assert (record.submitter, record.worker) == ("nobody", receiver.id)


async def test_the_same_run_twice_and_side_by_side_is_executed_once(setup: ReceiverSetup) -> None:
    run = await setup.handed_over(setup.work, 7)

    async with setup.app.receiver() as one, setup.app.receiver() as other:
        ends = [one, other, one, other]
        taken = await asyncio.gather(*(receiver.claim_by_id(run.id) for receiver in ends))
        await asyncio.gather(one.wait_until_idle(), other.wait_until_idle())
        again = await one.claim_by_id(run.id)

    assert sorted(taken) == [False, False, False, True]
    assert not again
    assert setup.ran == [7]


@pytest.mark.parametrize("state", [state for state in State if state is not State.PENDING])
async def test_a_run_that_is_not_pending_is_not_claimed_and_is_unchanged(
    setup: ReceiverSetup, state: State
) -> None:
    run = await setup.handed_over(setup.work, 7)
    store = await setup.app.context.store.open()
    ended = None if state is State.IN_PROGRESS else run.created_at
    await store.call(_change, run.id, state=state, started_at=run.created_at, ended_at=ended)
    before = await setup.app.executions.get(run.id)

    async with setup.app.receiver() as receiver:
        assert not await receiver.claim_by_id(run.id)

    assert await setup.app.executions.get(run.id) == before
    assert setup.ran == []


async def test_a_run_that_does_not_exist_is_an_error(setup: ReceiverSetup) -> None:
    async with setup.app.receiver() as receiver:
        with pytest.raises(NotFound, match="no execution 4711"):
            await receiver.claim_by_id(4711)


async def test_a_run_without_code_here_stays_pending_for_others(setup: ReceiverSetup) -> None:
    run = await setup.handed_over(setup.work, 7)
    store = await setup.app.context.store.open()
    await store.call(_change, run.id, train="foreign")

    async with setup.app.receiver() as receiver:
        with pytest.raises(UnknownTrain, match="'foreign'"):
            await receiver.claim_by_id(run.id)

    assert (await setup.app.executions.get(run.id)).state == State.PENDING


@pytest.mark.parametrize("spoiled", [None, '"seven"'])
async def test_a_missing_or_unfit_input_is_dead_lettered_with_the_reason(
    setup: ReceiverSetup, spoiled: str | None
) -> None:
    run = await setup.handed_over(setup.work, 7)
    store = await setup.app.context.store.open()
    await store.call(_change, run.id, input=spoiled)

    async with setup.app.receiver() as receiver:
        assert await receiver.claim_by_id(run.id)
        await receiver.wait_until_idle()

    record = await setup.app.executions.get(run.id)
    (letter,) = await setup.app.dead_letters.list()
    assert (record.state, record.failure_exception) == (State.FAILED, "InvalidInput")
    assert "train 'work': invalid input" in str(record.failure_reason)
    assert "train 'work': invalid input" in letter.reason


def _change(connection: Connection, metadata_id: int, **columns: Any) -> None:
    metadata = tables(connection).metadata
    connection.execute(metadata.update().where(metadata.c.id == metadata_id).values(**columns))


async def test_two_trains_with_the_same_input_type_are_distinguished_by_name(setup: ReceiverSetup) -> None:
    @setup.app.train
    async def other(number: int) -> str:
        return f"other {number}"

    run = await setup.handed_over(other, 7)

    async with setup.app.receiver() as receiver:
        await receiver.claim_by_id(run.id)
        await receiver.wait_until_idle()

    assert (await setup.app.executions.get(run.id)).output == "other 7"


async def test_leaving_the_block_ends_the_runs_and_unregisters_the_worker(setup: ReceiverSetup) -> None:
    run = await setup.handed_over(setup.work, 7)

    async with setup.app.receiver() as receiver:
        await receiver.claim_by_id(run.id)

    assert (await setup.app.executions.get(run.id)).state == State.COMPLETED
    store = await setup.app.context.store.open()
    assert await store.ask(_workers) == 0


def _workers(connection: Connection) -> int:
    return len(connection.execute(tables(connection).worker.select()).all())


async def test_inline_executes_within_the_hand_over_with_the_same_records(url: str) -> None:
    setup = ReceiverSetup(Trax(url))
    setup.app.submitters.default = Inline(setup.app)
    setup.app.schedule(setup.work, "good", 1, every(hours=1))
    setup.app.schedule(setup.work, "bad", -1, every(hours=1))

    async with asyncio.timeout(60), setup.h:
        await setup.h.run_until_idle()

        good, bad = await setup.app.manifests.get("good"), await setup.app.manifests.get("bad")
        assert (good.last_successful_run, good.failure_count) == (setup.h.now, 0)
        assert (bad.last_successful_run, bad.failure_count) == (None, 1)
        assert sorted(setup.ran) == [-1, 1]
        (failed,) = await setup.app.executions.list(state="failed")
        assert (failed.failure_exception, failed.failure_junction) == ("ValueError", "work")


async def test_a_poisoned_job_of_a_manifest_gets_one_dead_letter_and_stops_no_other(url: str) -> None:
    app = Trax(url)
    ran: list[int] = []

    @app.train
    async def work(number: int) -> None:
        ran.append(number)

    app.schedule(work, "spoiled", 1, every(hours=1))
    app.schedule(work, "sound", 2, every(hours=1))
    async with Harness(app) as h:
        store = await app.context.store.open()
        await store.call(_spoil_manifest, "spoiled")
        await h.run_until_idle()
        await h.run_until_idle()

        (letter,) = await app.dead_letters.list()
        assert (letter.manifest, ran) == ("spoiled", [2])
        assert "train 'work': invalid input" in letter.reason


def _spoil_manifest(connection: Connection, external_id: str) -> None:
    manifest = tables(connection).manifest
    statement = manifest.update().where(manifest.c.external_id == external_id)
    connection.execute(statement.values(input='"seven"'))


class Bench:
    """A receiver with one slot, and a train whose runs end when told."""

    def __init__(self, setup: ReceiverSetup) -> None:
        self.setup = setup
        self.began: list[int] = []
        self.gate = asyncio.Event()

        @setup.app.train
        async def build(number: int) -> None:
            self.began.append(number)
            await self.gate.wait()

        self.build = build

    async def claim_three(self, receiver: Receiver) -> list[int]:
        ids = [(await self.setup.handed_over(self.build, number)).id for number in range(3)]
        assert await receiver.claim_by_ids(ids) == [True] * 3
        return ids

    async def begins(self, *numbers: int) -> None:
        async with asyncio.timeout(60):
            while self.began != [*numbers]:  # noqa: ASYNC110 - a slot begins a run in the next iterations
                await asyncio.sleep(0)


async def test_runs_beyond_the_slots_wait_and_start_when_their_code_starts(
    setup: ReceiverSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MAX_WAIT_SECONDS", 0.0)
    bench = Bench(setup)
    async with setup.app.receiver(concurrency=1) as receiver:
        ids = await bench.claim_three(receiver)
        await bench.begins(0)
        await setup.h.advance(hours=9)
        waiting = await setup.app.executions.get(ids[1])

        bench.gate.set()
        await receiver.wait_until_idle()

    assert (waiting.state, waiting.started_at) == (State.IN_PROGRESS, None)
    records = [await setup.app.executions.get(run_id) for run_id in ids]
    assert [record.state for record in records] == [State.COMPLETED] * 3, "none is handed over again"
    starts = [record.started_at - record.created_at for record in records if record.started_at]
    assert [start >= timedelta(hours=9) for start in starts] == [False, True, True]


async def test_a_run_that_was_reassigned_while_it_waited_does_not_begin(setup: ReceiverSetup) -> None:
    bench = Bench(setup)
    async with setup.app.receiver(concurrency=1) as receiver:
        ids = await bench.claim_three(receiver)
        await bench.begins(0)
        store = await setup.app.context.store.open()
        await store.call(_change, ids[1], state=State.CANCELLED, ended_at=setup.h.now)

        bench.gate.set()
        await receiver.wait_until_idle()

    assert bench.began == [0, 2]
    assert (await setup.app.executions.get(ids[1])).state == State.CANCELLED


async def test_a_run_whose_start_cannot_be_recorded_goes_back_to_the_queue(
    setup: ReceiverSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: Any, **_keywords: Any) -> bool:
        raise StoreUnavailable("away")

    bench = Bench(setup)
    async with setup.app.receiver(concurrency=1) as receiver:
        ids = await bench.claim_three(receiver)
        await bench.begins(0)
        monkeypatch.setattr(claim, "start_waiting", refuse)

        bench.gate.set()
        await receiver.wait_until_idle()

    assert bench.began == [0]
    records = [await setup.app.executions.get(run_id) for run_id in ids]
    assert [record.failure_exception for record in records] == [None, "Interrupted", "Interrupted"]
    assert len(await setup.app.work_queue.list(status="queued")) == 2
