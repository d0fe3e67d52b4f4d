"""Messages of SQS: their content, their deletion and redelivery, and functions called with them."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.sqs_consumer import client
from tests.support.waiting import until

from trax import Refused, Submission, Trax
from trax.errors import MissingExtra
from trax.remote.sqs import SqsConsumer, SqsWorkers, lambda_handler
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from tests.support.amazon import Amazon


class Context:
    """What Lambda tells a function of the time it has left."""

    def __init__(self, seconds: float = 900) -> None:
        self._seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        return int(self._seconds * 1000)


class SqsSetup:
    """A queue, and apps at both ends of it."""

    def __init__(self, folder: Path, amazon: Amazon, queue: str = "jobs") -> None:
        self._folder = folder
        self.amazon = amazon
        self.queue_url = amazon.queue(queue)
        self.submitter = SqsWorkers(self.queue_url, client=amazon.client)

    def app(self) -> Trax:
        app = Trax(f"sqlite:///{self._folder}/trax.db", submitter=self.submitter, shutdown_timeout=0.1)

        @app.train
        async def work(word: str) -> str:
            if word == "endless":
                await asyncio.Event().wait()
            if word == "wrong":
                raise ValueError(word)
            return word.upper()

        return app

    def send(self, body: str) -> None:
        self.amazon.client.send_message(QueueUrl=self.queue_url, MessageBody=body)

    def event(self) -> dict[str, Any]:
        """What Lambda calls a function with for the messages that are there."""
        found = self.amazon.client.receive_message(QueueUrl=self.queue_url, MaxNumberOfMessages=10)
        return {
            "Records": [
                {"messageId": one["MessageId"], "body": one["Body"]} for one in found.get("Messages", [])
            ]
        }


def submission(number: int) -> Submission:
    return Submission(metadata_id=number, external_id=f"e{number}", train="work")


@asynccontextmanager
async def consuming(setup: SqsSetup, concurrency: int = 10) -> AsyncGenerator[None]:
    app, stopped, second = setup.app(), asyncio.Event(), timedelta(seconds=1)
    consumer = SqsConsumer(
        app, setup.queue_url, client=setup.amazon.client, concurrency=concurrency, poll=second
    )
    running = asyncio.create_task(consumer.run(stopped))
    try:
        yield
    finally:
        stopped.set()
        await running
        app.close()


async def until_left(setup: SqsSetup, messages: int) -> None:
    """A queue tells nobody; it must be asked."""
    await asyncio.to_thread(until, lambda: setup.amazon.waiting(setup.queue_url) == messages)


async def queued(app: Trax, *words: str) -> None:
    async with Harness(app) as h:
        await app.queue_many("work", words)
        await h.run_until_idle()


async def outcomes(setup: SqsSetup) -> dict[Any, str]:
    app = setup.app()
    try:
        return {run.input: run.state for run in await app.executions.list()}
    finally:
        app.close()


@pytest.fixture
def setup(tmp_path: Path, amazon: Amazon) -> SqsSetup:
    return SqsSetup(tmp_path, amazon)


def test_a_message_carries_only_the_id_of_its_record(setup: SqsSetup) -> None:
    assert setup.submitter.submit([submission(7), submission(8)]) == [None, None]

    bodies = [json.loads(one["body"]) for one in setup.event()["Records"]]
    assert sorted(body["metadata_id"] for body in bodies) == [7, 8]
    assert all(list(body) == ["metadata_id"] for body in bodies)


def test_a_run_that_is_handed_over_again_is_the_same_message_to_a_fifo_queue(
    amazon: Amazon, tmp_path: Path
) -> None:
    setup = SqsSetup(tmp_path, amazon, "jobs.fifo")

    setup.submitter.submit([submission(7), submission(8)])
    setup.submitter.submit([submission(7)])

    assert amazon.waiting(setup.queue_url) == 2


def test_messages_of_one_group_are_given_out_one_after_the_other(amazon: Amazon) -> None:
    queue_url = amazon.queue("jobs.fifo")
    together = SqsWorkers(queue_url, client=amazon.client, message_group_id="ledger")

    together.submit([submission(7), submission(8)])

    (first,) = amazon.client.receive_message(QueueUrl=queue_url, MaxNumberOfMessages=1)["Messages"]
    assert json.loads(first["Body"]) == {"metadata_id": 7}
    assert "Messages" not in amazon.client.receive_message(QueueUrl=queue_url, MaxNumberOfMessages=1)


def test_each_message_that_is_refused_has_an_answer_of_its_own(
    setup: SqsSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(**_: Any) -> dict[str, Any]:
        failed = {"Id": "8", "Code": "InternalError", "Message": "try later", "SenderFault": False}
        return {"Successful": [{"Id": "7"}], "Failed": [failed]}

    monkeypatch.setattr(setup.amazon.client, "send_message_batch", half)

    assert setup.submitter.submit([submission(7), submission(8), submission(9)]) == [
        None,
        Refused("SQS rejected the message with InternalError: try later"),
        Refused("SQS reported no result for this run"),
    ]


def test_an_unreachable_queue_accepts_no_message(amazon: Amazon) -> None:
    away = SqsWorkers(amazon.queue("jobs"), client=client("http://127.0.0.1:9"))

    with pytest.raises(Exception, match="Could not connect"):
        away.submit([submission(7)])


async def test_messages_of_ended_runs_are_deleted_and_invalid_ones_stay(setup: SqsSetup) -> None:
    await queued(setup.app(), "hello", "wrong")
    setup.send("nonsense")
    setup.send('{"metadata_id": 999}')

    async with consuming(setup):
        await until_left(setup, 2)

    assert await outcomes(setup) == {"hello": "completed", "wrong": "failed"}


HOSTILE = {
    "an endless id": '{"metadata_id": Infinity}',
    "an id that is not a number": '{"metadata_id": NaN}',
    "an id beyond 64 bits": '{"metadata_id": 1e99}',
    "an id of 70 bits": f'{{"metadata_id": {2**70}}}',
    "an id of many digits": f'{{"metadata_id": {"9" * 10_000}}}',
    "an id below zero": '{"metadata_id": -1}',
    "an id that is true": '{"metadata_id": true}',
    "an id that is text": '{"metadata_id": "1"}',
    "an id that is a list": '{"metadata_id": [1]}',
    "deep JSON": "[" * 100_000,
    "a number": "7",
    "half a character": '"\\ud800"',
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
async def test_an_unreadable_message_does_not_stop_the_others(setup: SqsSetup, body: str) -> None:
    setup.send(body)
    await queued(setup.app(), "hello")
    setup.send(body)

    async with consuming(setup):
        await until_left(setup, 2)

    assert await outcomes(setup) == {"hello": "completed"}


async def test_a_consumer_receives_no_more_messages_than_it_has_slots(setup: SqsSetup) -> None:
    await queued(setup.app(), "endless", "hello")

    async with consuming(setup, concurrency=1):
        await until_left(setup, 1)

        assert sorted((await outcomes(setup)).values()) == ["in_progress", "pending"]


async def test_messages_of_the_last_poll_are_returned_at_once(
    setup: SqsSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop_first(**wanted: Any) -> Any:
        here.call_soon_threadsafe(stopped.set)
        return receive(**wanted)

    setup.queue_url = setup.amazon.queue("patient", VisibilityTimeout="600")
    setup.send("anything")
    app, stopped, here = setup.app(), asyncio.Event(), asyncio.get_running_loop()
    receive = setup.amazon.client.receive_message
    monkeypatch.setattr(setup.amazon.client, "receive_message", stop_first)

    await SqsConsumer(app, setup.queue_url, client=setup.amazon.client).run(stopped)

    monkeypatch.undo()
    app.close()
    assert [one["body"] for one in setup.event()["Records"]] == ["anything"]


async def test_a_function_returns_the_messages_to_be_redelivered(setup: SqsSetup) -> None:
    await queued(setup.app(), "hello", "wrong")
    setup.send("nonsense")
    handle, event = lambda_handler(setup.app()), setup.event()

    answer = await asyncio.to_thread(handle, event, Context())

    (nonsense,) = [one["messageId"] for one in event["Records"] if one["body"] == "nonsense"]
    assert answer == {"batchItemFailures": [{"itemIdentifier": nonsense}]}
    assert await outcomes(setup) == {"hello": "completed", "wrong": "failed"}


async def test_a_function_that_is_called_again_with_the_same_executes_nothing(setup: SqsSetup) -> None:
    await queued(setup.app(), "hello")
    handle, event = lambda_handler(setup.app()), setup.event()
    await asyncio.to_thread(handle, event, Context())

    assert await asyncio.to_thread(handle, event, Context()) == {"batchItemFailures": []}

    assert await outcomes(setup) == {"hello": "completed"}


async def test_a_job_that_would_outlast_its_function_goes_back_to_the_queue(setup: SqsSetup) -> None:
    await queued(setup.app(), "endless")

    answer = await asyncio.to_thread(lambda_handler(setup.app()), setup.event(), Context(seconds=5))

    assert answer == {"batchItemFailures": []}
    app = setup.app()
    (entry,), (run,) = await app.work_queue.list(), await app.executions.list()
    app.close()
    assert (run.failure_exception, entry.status) == ("Interrupted", "queued")


@pytest.mark.parametrize("made", [lambda: SqsWorkers("x"), lambda: SqsConsumer(Trax("memory://"), "x")])
def test_without_the_sqs_extra_the_error_names_the_package(
    made: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)

    with pytest.raises(MissingExtra, match=r"pip install 'trax-scheduler\[sqs\]'"):
        made()
