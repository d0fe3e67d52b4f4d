"""Trains that run in processes of their own."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr
from tests.support import cpu_trains
from tests.support.waiting import until

from trax.engine.job_dispatcher import run_dispatch_cycle
from trax.engine.routing import Routing
from trax.errors import DefinitionError
from trax.masking import HIDDEN
from trax.records import Metadata, State
from trax.store.runs import rescue
from trax.testing import Harness
from trax.train import Cancelled, Done, Failed
from trax.train.secrets import VARIABLE, generate_key
from trax.worker import processes
from trax.worker.messages import TrainReference, pack_outcome, reference_to, unpack_outcome
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from trax import Trax
    from trax.store import Store
    from trax.train import Train


class Shed:
    """The app of `heavy`, one worker, and the way from a queued job to its record."""

    def __init__(self, app: Trax, store: Store, worker: Worker) -> None:
        self.app = app
        self.store = store
        self.worker = worker

    async def queue(self, train: Train[Any, Any], *values: Any) -> None:
        await self.app.queue_many(train, values)
        await self.store.call(run_dispatch_cycle, self.store, self.app.context.settings, Routing())

    async def run(self, train: Train[Any, Any], *values: Any) -> list[Metadata]:
        await self.queue(train, *values)
        async with asyncio.timeout(120):
            await self.worker.run_all()
        return await self.records()

    async def begin(self, train: Train[Any, Any], marker: Path) -> int:
        """Start a run, and return its id once it has said that it runs."""
        await self.queue(train, str(marker))
        await self.worker.claim()
        await asyncio.to_thread(until, marker.exists, within_seconds=60)
        return (await self.records())[-1].id

    async def records(self) -> list[Metadata]:
        return list(reversed(await self.app.executions.list()))


@pytest.fixture
async def shed(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Shed]:
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.0)
    app = cpu_trains.app
    store = await app.context.store.open()
    worker = await Worker.start(app.context, store)
    yield Shed(app, store, worker)
    await worker.drain(0)
    await worker.unregister()
    app.close()


async def test_a_cpu_train_runs_in_another_process_with_services_and_its_own_run(shed: Shed) -> None:
    (record,) = await shed.run(cpu_trains.look, 21)

    assert (record.state, record.failure_reason) == (State.COMPLETED, None)
    assert record.output["pid"] != os.getpid()
    assert record.output == {
        "pid": record.output["pid"],
        "metadata_id": record.id,
        "attempt": 1,
        "manifest": None,
        "doubled": 42,
    }


async def test_a_process_is_used_again_and_there_are_no_more_than_slots(shed: Shed) -> None:
    records = await shed.run(cpu_trains.look, *range(8))

    assert [record.state for record in records] == [State.COMPLETED] * 8
    assert len({record.output["pid"] for record in records}) <= 2


@pytest.mark.parametrize(
    ("what", "exception", "reason"),
    [
        ("raise", "KeyError", "'raise'"),
        ("refuse", "Refusal", "not readable"),
        ("exit", "ProcessDied", "the process exited with code 7"),
        ("leave", "SystemExit", "3"),
        ("interrupt", "KeyboardInterrupt", "interrupt"),
        ("panic", "PanicException", "panic"),
        ("kill", "ProcessDied", "the process was killed by SIGKILL, perhaps because memory ran out"),
    ],
)
async def test_a_failing_or_crashing_cpu_run_fails_alone(
    shed: Shed, what: str, exception: str, reason: str
) -> None:
    failed, fine = await shed.run(cpu_trains.fail, what), await shed.run(cpu_trains.look, 1)

    assert (failed[0].state, failed[0].failure_exception, failed[0].failure_reason) == (
        State.FAILED,
        exception,
        reason,
    )
    assert fine[-1].state is State.COMPLETED


async def test_an_interrupt_that_an_async_run_raises_fails_it_alone(shed: Shed) -> None:
    failed, fine = await shed.run(cpu_trains.interrupt, 7), await shed.run(cpu_trains.look, 1)

    assert (failed[0].state, failed[0].failure_exception) == (State.FAILED, "KeyboardInterrupt")
    assert fine[-1].state is State.COMPLETED


async def test_the_place_of_a_failure_is_known(shed: Shed) -> None:
    (record,) = await shed.run(cpu_trains.fail, "raise")

    assert record.failure_junction == "fail"
    assert "cpu_trains.py" in (record.stack_trace or "")


@pytest.mark.parametrize("train", [cpu_trains.spin, cpu_trains.wait], ids=["deaf", "waiting"])
async def test_a_cancelled_run_ends_with_its_process_and_the_next_gets_a_new_one(
    shed: Shed, train: Train[Any, Any], tmp_path: Path
) -> None:
    run_id = await shed.begin(train, tmp_path / "began")

    await shed.store.call(rescue.request_cancel, [run_id])
    await shed.worker.send_heartbeat()
    async with asyncio.timeout(60):
        while not await shed.worker.flush():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
    records = await shed.run(cpu_trains.look, 1)

    assert [record.state for record in records] == [State.CANCELLED, State.COMPLETED]


async def test_a_run_that_listens_may_tidy_up(
    shed: Shed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "GRACE_SECONDS", 60.0)
    run_id = await shed.begin(cpu_trains.listen, tmp_path / "began")

    await shed.store.call(rescue.request_cancel, [run_id])
    await shed.worker.send_heartbeat()
    async with asyncio.timeout(60):
        await shed.worker.drain(60)

    assert (tmp_path / "began.tidied").exists()
    assert (await shed.records())[0].state is State.CANCELLED


async def test_a_run_that_must_be_interrupted_goes_back_to_the_queue(shed: Shed, tmp_path: Path) -> None:
    await shed.begin(cpu_trains.spin, tmp_path / "began")

    async with asyncio.timeout(60):
        await shed.worker.drain(0)

    (record,) = await shed.records()
    (entry,) = await shed.app.work_queue.list()
    assert (record.state, record.failure_exception) == (State.CANCELLED, "Interrupted")
    assert entry.status == "queued"


async def test_a_signal_to_all_processes_is_left_to_the_worker(shed: Shed) -> None:
    records = await shed.run(cpu_trains.hear, signal.SIGTERM, signal.SIGINT)

    assert [record.state for record in records] == [State.COMPLETED] * 2


async def test_no_more_cpu_runs_are_claimed_than_there_are_processes(
    shed: Shed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    worker = await Worker.start(shed.app.context, shed.store, slots=4)
    await shed.queue(cpu_trains.listen, *(str(tmp_path / str(number)) for number in range(3)))
    await shed.queue(cpu_trains.greet, "Ada")

    assert await worker.claim() == 2
    assert await worker.claim() == 0
    await asyncio.to_thread(until, (tmp_path / "0").exists, within_seconds=60)
    async with asyncio.timeout(60):
        await worker.drain(0)
    await worker.unregister()

    states = [record.state for record in await shed.records()]
    assert states == [State.CANCELLED, State.PENDING, State.PENDING, State.COMPLETED]


async def test_progress_log_lines_and_dependents_work_across_the_border() -> None:
    async with Harness(cpu_trains.app) as h:
        await h.app.queue(cpu_trains.report, 4)
        async with asyncio.timeout(120):
            await h.run_until_idle()

        records = {record.train: record for record in await h.app.executions.list()}
        lines = await h.app.executions.logs(records["report"].id)
        assert records["report"].progress == 0.25
        assert [(line.logger, line.message) for line in lines] == [("heavy", "step 1 of 4")]
        assert (records["wake"].output, records["greet"].output) == (1, "hello Ada")
        assert "stranger" in (records["wake_a_stranger"].failure_reason or "")


NESTED = """
from trax import Trax, current, every

app = Trax({url!r})


@app.train
async def scan(name: str) -> int:
    return await current().activate("asleep", name)


@app.train(cpu=True)
async def scan_around(name: str) -> int:
    return await app.run(scan, name)


@app.train
async def greet(name: str) -> str:
    return f"hello {{name}}"


app.schedule(scan_around, "around", "Ada", every(hours=1)).include(greet, "asleep", "nobody", dormant=True)
"""


async def test_a_run_inside_a_cpu_run_wakes_the_dependents_of_its_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'trax.db'}"
    (tmp_path / "nested_in_a_process.py").write_text(NESTED.format(url=url), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)  # pyright: ignore[reportUnknownMemberType]
    app = importlib.import_module("nested_in_a_process").app
    async with Harness(app) as h, asyncio.timeout(120):
        await h.run_until_idle()

        outputs = {record.train: record.output for record in await h.app.executions.list()}
        assert (outputs["scan_around"], outputs["scan"], outputs["greet"]) == (1, 1, "hello Ada")
    del sys.modules["nested_in_a_process"]


async def test_a_cpu_train_that_cannot_be_imported_is_given_up_with_the_reason() -> None:
    app = cpu_trains.made()
    async with Harness(app) as h:
        await app.queue(app.trains.get("unreachable"), 1)
        await h.run_until_idle()

        (record,) = await app.executions.list()
        assert (record.failure_exception, record.attempt) == ("DefinitionError", 1)
        assert "at the top level of a module" in (record.failure_reason or "")
        assert len(await app.dead_letters.list()) == 1


def test_a_train_is_found_by_its_own_name_or_within_its_app(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reference_to(cpu_trains.look) == TrainReference("look", "tests.support.cpu_trains", "look")
    assert reference_to(cpu_trains.look).resolve() is cpu_trains.look

    reference_to.cache_clear()
    look = cpu_trains.look
    monkeypatch.delattr(cpu_trains, "look")

    assert reference_to(look) == TrainReference("look", "tests.support.cpu_trains", "app")
    assert reference_to(look).resolve() is look


def test_a_train_missing_from_its_module_is_reported() -> None:
    with pytest.raises(DefinitionError, match=r"tests.support.cpu_trains.missing does not exist"):
        TrainReference("look", "tests.support.cpu_trains", "missing").resolve()


def test_how_a_run_ended_travels_even_when_its_guests_cannot(caplog: pytest.LogCaptureFixture) -> None:
    class Local(Exception):
        pass

    assert unpack_outcome(pack_outcome(Done(1))) == Done(1)
    assert unpack_outcome(pack_outcome(Done(Local()))) == Done(None)
    assert unpack_outcome(pack_outcome(Cancelled("enough", error=Local()))) == Cancelled("enough")
    assert "cannot be pickled" in caplog.text
    failed = unpack_outcome(pack_outcome(Failed(cpu_trains.Refusal("a", "b"), _described())))
    assert isinstance(failed, Failed)
    assert str(failed.error) == "Refusal: a b"


def _described() -> Any:
    from trax.train.outcome import describe

    return describe(cpu_trains.Refusal("a", "b"), train="fail", external_id="0" * 32, junction=None)


async def test_a_cpu_process_reads_the_secret_and_reveals_none_of_it(
    shed: Shed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, generate_key())
    plain = "hunter" + str(2) * 3
    wrong = "wrong" + plain

    done, failed = await shed.run(cpu_trains.knock, SecretStr(plain), SecretStr(wrong))

    assert (done.state, done.output, done.input) == (State.COMPLETED, len(plain), HIDDEN)
    assert failed.failure_reason == f"nobody knows {HIDDEN}"
    lines = [*await shed.app.executions.logs(done.id), *await shed.app.executions.logs(failed.id)]
    assert [line.message for line in lines] == [f"knocked with {HIDDEN}"] * 2
    assert plain not in repr((done, failed, lines))
