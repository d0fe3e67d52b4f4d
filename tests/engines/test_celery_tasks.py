"""Tasks sent to Celery, errors of an unreachable broker, and their execution in a worker."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
from __future__ import annotations

import asyncio
import socket
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery, signals
from celery.exceptions import Retry
from kombu.exceptions import OperationalError

from trax import NotFound, Submission, Trax
from trax.errors import DefinitionError, InvalidArgument, MissingExtra
from trax.remote.celery import TASK, CeleryWorkers, broker_priority, celery_task
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

RUNS = [Submission(metadata_id=number, external_id=f"e{number}", train="work") for number in (7, 8)]


@pytest.fixture
def silent_port() -> Generator[int]:
    """Somebody listens there, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def celery_at(broker: str, **conf: Any) -> Any:
    app: Any = Celery("site", broker=broker)
    app.conf.update(conf)
    return app


def messages_of(app: Any, queue: str) -> list[Any]:
    with app.connection_for_read() as connection, connection.SimpleQueue(queue) as waiting:
        return [waiting.get(block=False) for _ in range(waiting.qsize())]


@pytest.mark.parametrize(("ours", "usual", "of_redis"), [(0, 0, 9), (16, 5, 4), (31, 9, 0)])
def test_priorities_keep_their_order_in_what_the_broker_understands(
    ours: int, usual: int, of_redis: int
) -> None:
    assert broker_priority(ours, "amqp") == usual
    assert broker_priority(ours, "redis") == of_redis


def test_a_task_carries_the_id_of_a_record_and_no_more() -> None:
    app = celery_at("memory://task-carries")

    assert CeleryWorkers(app, queue="far").submit(RUNS) == [None, None]

    sent = messages_of(app, "far")
    assert [one.payload[:2] for one in sent] == [[[7], {}], [[8], {}]]
    assert [one.headers["id"] for one in sent] == ["e7-7", "e8-8"]
    assert {one.headers["task"] for one in sent} == {"trax.take_up"}


@pytest.mark.parametrize("scheme", ["redis", "amqp"])
def test_a_broker_that_is_down_accepts_no_task(scheme: str, closed_port: int) -> None:
    away = CeleryWorkers(celery_at(f"{scheme}://127.0.0.1:{closed_port}//"))

    with pytest.raises(OperationalError):
        away.submit(RUNS)


@pytest.mark.parametrize("scheme", ["redis", "amqp"])
def test_a_broker_that_does_not_answer_is_not_waited_for(scheme: str, silent_port: int) -> None:
    celery_app = celery_at(f"{scheme}://127.0.0.1:{silent_port}//")
    silent = CeleryWorkers(celery_app, connect_timeout=timedelta(seconds=0.1))

    with pytest.raises(OperationalError):
        silent.submit(RUNS)


def test_after_a_failed_send_the_rest_of_the_batch_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_at_the_second(*_: Any, args: tuple[int], **__: Any) -> None:
        asked.append(args[0])
        if len(asked) == 2:
            raise OperationalError("gone")

    app, asked = celery_at("memory://"), list[int]()
    monkeypatch.setattr(app, "send_task", fail_at_the_second)

    first, *others = CeleryWorkers(app).submit([*RUNS, *RUNS])

    assert first is None
    assert [str(one) for one in others] == ["gone"] * 3
    assert asked == [7, 8]


def test_only_a_celery_app_will_do() -> None:
    with pytest.raises(DefinitionError, match=r"CeleryWorkers needs a Celery app \(got str\)"):
        CeleryWorkers("redis://:secret@here")


def test_without_the_celery_extra_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    app = celery_at("memory://")
    monkeypatch.setitem(sys.modules, "celery", None)

    with pytest.raises(MissingExtra, match=r"pip install 'trax-scheduler\[celery\]'"):
        CeleryWorkers(app)


class Site:
    """An app in a file, and its task, called as Celery calls it."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/trax.db"
        self.app = Trax(self.url)
        self.app.submitters.default = CeleryWorkers(celery_at("memory://"))
        self.task = celery_task(self.app, celery_at("memory://", task_always_eager=True))

        @self.app.train
        async def work(word: str) -> str:
            return word.upper()

    def handed_over(self) -> int:
        async def queue() -> int:
            async with Harness(self.app) as h:
                await self.app.queue("work", "hello")
                await h.run_until_idle()
                return (await self.app.executions.list())[0].id

        return asyncio.run(queue())

    def output(self, metadata_id: int) -> Any:
        async def get() -> Any:
            return (await self.app.executions.get(metadata_id)).output

        return asyncio.run(get())


@pytest.fixture
def site(tmp_path: Path) -> Generator[Site]:
    site = Site(tmp_path)
    yield site
    signals.worker_shutdown.send(sender=None)
    site.app.close()


def test_a_task_that_is_delivered_again_does_nothing(site: Site) -> None:
    run = site.handed_over()

    assert site.task(run) is True
    assert site.task(run) is False

    assert site.output(run) == "HELLO"


def test_celery_apps_in_one_process_keep_to_their_own_task(site: Site) -> None:
    run, strange = site.handed_over(), celery_at("memory://")
    celery_task(other := Trax("memory://"), neighbour := celery_at("memory://"))

    assert TASK not in strange.tasks
    assert neighbour.tasks[TASK] is not site.task
    with pytest.raises(NotFound):
        neighbour.tasks[TASK](run)

    signals.worker_shutdown.send(sender=None)
    other.close()
    assert site.task(run) is True


def test_two_apps_with_one_celery_app_need_two_names() -> None:
    celery_app, first, second = celery_at("memory://"), Trax("memory://"), Trax("memory://")
    celery_task(first, celery_app)

    with pytest.raises(DefinitionError, match=r"task 'trax.take_up' is already .* name=…"):
        celery_task(second, celery_app)

    assert celery_task(second, celery_app, name="second").name == "second"


def test_a_task_whose_record_is_gone_has_failed(site: Site) -> None:
    site.handed_over()

    with pytest.raises(NotFound, match="no execution 999"):
        site.task(999)


@pytest.mark.parametrize(
    "value", ["7", "x" * 100_000, None, True, 1.0, float("nan"), float("inf"), -1, 2**70, [7], {}, "\ud800"]
)
def test_a_task_whose_id_is_none_has_failed_and_is_not_retried(
    site: Site, monkeypatch: pytest.MonkeyPatch, value: Any
) -> None:
    def again(exc: Exception) -> Retry:
        return Retry(exc=exc)

    site.handed_over()
    monkeypatch.setattr(site.task, "retry", again)

    with pytest.raises(InvalidArgument, match="metadata_id must be an id") as refused:
        site.task(value)

    assert len(str(refused.value)) < 500


def test_a_process_without_the_code_leaves_the_run_to_another(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def again(exc: Exception) -> Retry:
        return Retry(exc=exc)

    run = site.handed_over()
    older = celery_task(bare := Trax(site.url), celery_at("memory://"), name="older")
    monkeypatch.setattr(older, "retry", again)

    with pytest.raises(Retry, match="no train is registered as 'work'"):
        older(run)

    signals.worker_shutdown.send(sender=None)
    bare.close()
    assert site.task(run) is True
