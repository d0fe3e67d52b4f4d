"""A client with the secret of an HTTP worker can end its runs, and do nothing else."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from tests.support.manager_harness import ManagerHarness

from trax import current, every
from trax.errors import InvalidArgument
from trax.records import Origin, State
from trax.remote.http.signing import NONCE, ResponseKey
from trax.remote.http.workers import HttpWorkers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trax import Metadata

SECRET = "a secret for the tests"
TEN = datetime(2027, 3, 1, 10, tzinfo=UTC)
DONE = '{"done":"DONE"}'


class HostileWorker(ManagerHarness):
    """A schedule with a dormant dependent; its jobs are sent to an endpoint that streams `lines`."""

    def __init__(self, url: str) -> None:
        super().__init__(url, TEN, max_active_jobs=1)
        self.lines: list[str] = []
        self.schedule(self.job, "scan", "scan", every(minutes=5)).include(
            self.job, "load", "stored", dormant=True
        )
        transport = httpx2.MockTransport(self._respond)
        self.app.submitters.default = HttpWorkers(
            "http://far/jobs", SECRET, transport=transport, mode="response"
        )

    def _respond(self, request: httpx2.Request) -> httpx2.Response:
        key = ResponseKey(SECRET.encode(), request.headers[NONCE])
        if request.url.path.endswith("offer"):
            response = httpx2.Response(200, json={"answers": [None]})
            response.headers.update(key.headers(200, response.content))
            return response
        signed = [key.sign_line(place, line.encode()) for place, line in enumerate(self.lines, 1)]
        return httpx2.Response(200, content=b"\n".join([*signed, b""]))

    async def run_with(self, *lines: str) -> Metadata:
        """The record of a run whose endpoint sends these lines."""
        self.lines = list(lines)
        await self.app.queue(self.job, "hello")
        await self.cycle("job_dispatcher")
        await self.cycle("hand_over")
        await self.cycle("run_log")
        return (await self.app.executions.list())[0]


@pytest.fixture
async def h(url: str) -> AsyncGenerator[HostileWorker]:
    async with asyncio.timeout(60), HostileWorker(url) as opened:
        yield opened


async def test_a_worker_starts_no_dependents_of_its_run(h: HostileWorker) -> None:
    await h.manage()
    h.lines = ['{"activate":[[["load","the input of an attacker"]],true]}', DONE]
    await h.cycle("job_dispatcher")
    await h.cycle("hand_over")

    (record,) = await h.app.executions.list()
    assert (record.manifest, record.state) == ("scan", State.COMPLETED)
    assert [entry for entry in h.queued() if entry.origin is Origin.DORMANT] == []


BAD_LINES = {
    "progress that is not a number": '{"progress":[NaN,"x"]}',
    "endless progress": '{"progress":[Infinity,"x"]}',
    "progress beyond its range": '{"progress":[2,"x"]}',
    "progress that is true": '{"progress":[true,"x"]}',
    "progress with a number as message": '{"progress":[0.5,7]}',
    "progress with too much": '{"progress":[0.5,"x","y"]}',
    "progress without a list": '{"progress":0.5}',
    "a junction that is a list": '{"junction":["a","b"]}',
    "a junction that is nothing": '{"junction":null}',
    "a log line without a level": '{"log":{"logger":"a","level":null,"message":"b"}}',
    "a log line with an endless level": '{"log":{"logger":"a","level":1e999,"message":"b"}}',
    "a log line that is text": '{"log":"b"}',
    "an output that is not a number": '{"done":NaN}',
    "a failure without a message": '{"failed":{"type":"a"}}',
    "a failure that is text": '{"failed":"a"}',
    "a retry that is never": '{"failed":{"type":"a","message":"b","retry_after":NaN}}',
    "a retry after text": '{"failed":{"type":"a","message":"b","retry_after":"c"}}',
    "a cancellation without a reason": '{"cancelled":{"reason":null,"timed_out":false}}',
    "an interruption after text": '{"interrupted":{"reason":"a","delay":"b"}}',
    "half a character": '{"progress":[0.5,"\\ud800"]}',
    "a list": "[1]",
    "no JSON": "{",
    "deep JSON": '{"done":' + "[" * 100_000 + "]" * 100_000 + "}",
}


@pytest.mark.parametrize("line", BAD_LINES.values(), ids=BAD_LINES)
async def test_a_run_ends_as_failed_when_its_worker_sends_what_cannot_be_read(
    h: HostileWorker, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    record = await h.run_with(line, DONE)

    assert (record.state, record.failure_exception) == (State.FAILED, "TraxError")
    assert "http://far/jobs sent an invalid line: " in str(record.failure_reason)
    assert len(str(record.failure_reason)) < 500
    assert [each for each in caplog.records if each.exc_info] == []


async def test_the_jobs_behind_it_are_executed(h: HostileWorker) -> None:
    for _ in range(3):
        await h.run_with('{"progress":[NaN,"x"]}')
    after = await h.run_with('{"progress":[0.5,"half\\u0000way"]}', '{"junction":"a\\u0000b"}', DONE)

    assert (after.state, after.output) == (State.COMPLETED, "DONE")


ODD_LINES = {
    "an endless retry": ('{"failed":{"type":"a","message":"b","retry_after":1e300}}', State.FAILED),
    "a retry in the past": ('{"failed":{"type":"a","message":"b","retry_after":-5}}', State.FAILED),
    "an endless interruption": ('{"interrupted":{"reason":"a","delay":1e300}}', State.CANCELLED),
    "long names": (
        '{"failed":{"type":"%s","message":"b","junction":"%s"}}' % (2 * ("x" * 5000,)),
        State.FAILED,
    ),
    "classes that are no names": ('{"failed":{"type":"a","message":"b","raised":[1,{}]}}', State.FAILED),
    "a class": ('{"failed":{"type":"a","message":"b","raised":7,"stack_trace":7}}', State.FAILED),
    "zeros in text": (
        '{"failed":{"type":"a\\u0000","message":"b\\u0000","junction":"c\\u0000"}}',
        State.FAILED,
    ),
}


@pytest.mark.parametrize(("line", "state"), ODD_LINES.values(), ids=ODD_LINES)
async def test_an_outcome_beyond_all_bounds_is_recorded_within_them(
    h: HostileWorker, line: str, state: State
) -> None:
    record = await h.run_with(line)

    assert record.state is state
    assert len(str(record.failure_exception)) <= 200
    assert len(str(record.failure_junction)) <= 200


async def test_names_of_loggers_that_a_worker_makes_up_are_not_kept(
    h: HostileWorker, caplog: pytest.LogCaptureFixture
) -> None:
    events = [
        {"log": {"logger": f"made.up.{number}", "level": 30, "message": f"line {number}"}}
        for number in range(3)
    ]

    record = await h.run_with(*map(json.dumps, events), DONE)

    assert [each.name for each in caplog.records if each.message.startswith("line")] == [
        f"made.up.{number}" for number in range(3)
    ]
    lines_of_run = await h.app.executions.logs(record.id)
    assert [line.logger for line in lines_of_run if line.logger.startswith("made")] == [
        f"made.up.{number}" for number in range(3)
    ]
    assert [name for name in logging.root.manager.loggerDict if name.startswith("made")] == []


@pytest.mark.parametrize("text", ['{"answers":[NaN]}', "[" * 100_000])
async def test_an_answer_that_cannot_be_read_hands_nothing_over(url: str, text: str) -> None:
    def respond(request: httpx2.Request) -> httpx2.Response:
        response = httpx2.Response(200, text=text)
        key = ResponseKey(SECRET.encode(), request.headers[NONCE])
        response.headers.update(key.headers(200, response.content))
        return response

    h = ManagerHarness(url, TEN)
    h.app.submitters.default = HttpWorkers("http://far/jobs", SECRET, transport=httpx2.MockTransport(respond))
    async with h:
        await h.app.queue(h.job, "hello")
        await h.cycle("job_dispatcher")
        await h.cycle("hand_over")

        (record,) = await h.app.executions.list()
        assert "invalid response" in str(record.failure_reason)


async def test_progress_with_a_message_that_is_no_text_is_refused(url: str) -> None:
    h, message = ManagerHarness(url, TEN), 7
    refused: list[str] = []

    async def report() -> Any:
        run: Any = current()
        for fraction, text in ((0.5, message), (float("nan"), "x"), (float("inf"), None), (True, None)):
            try:
                await run.progress(fraction, text)
            except InvalidArgument as error:
                refused.append(str(error))

    h.during["hello"] = report
    async with h:
        await h.app.queue(h.job, "hello")
        await h.run_until_idle()

    assert len(refused) == 4
