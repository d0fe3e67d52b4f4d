"""The submitter of HTTP workers: its calls, its handling of responses, and its retries."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import json
import logging
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import httpx2
import pytest

from trax import Refused, Retry, RetryAfter, RunTimedOut, Submission, Trax, current, junction
from trax.errors import DefinitionError, MissingExtra, RemoteFailure, RemoteLost
from trax.records import QueueStatus, State
from trax.remote.http.client import RETRY_STATUSES, CallRetry
from trax.remote.http.signing import NONCE, CallVerifier, ResponseKey, check_body
from trax.remote.http.workers import HttpWorkers
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from trax import Metadata

Mode = Literal["database", "response"]
SECRET = "a secret for the tests"
RUN = Submission(metadata_id=42, external_id="x1", train="work", input="7")
TAKEN = {"answers": [None]}


class Wire:
    """Answers calls one after the other as it is told, and keeps what it was sent.

    The answers are the far side's, and signed, but for those of proxies that find nobody at home.
    """

    def __init__(self, *answers: httpx2.Response | Exception, is_forged: bool = False) -> None:
        self._answers = list(answers)
        self._is_forged = is_forged
        self.calls: list[httpx2.Request] = []
        self.waits: list[float] = []

    def workers(self, **options: Any) -> HttpWorkers:
        transport = httpx2.MockTransport(self._answer)
        workers = HttpWorkers("https://far/jobs/", SECRET, transport=transport, **options)
        workers._endpoint.sleep = self._sleep
        workers._endpoint.chance = lambda: 0.5
        return workers

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.calls.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        is_theirs = not self._is_forged and answer.status_code not in RETRY_STATUSES
        return by_far_side(request, answer) if is_theirs else answer

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


def answer(status: int, value: Any = None, **headers: str) -> httpx2.Response:
    return httpx2.Response(
        status, json=value, headers={name.replace("_", "-"): text for name, text in headers.items()}
    )


def key_of(request: httpx2.Request) -> ResponseKey:
    return ResponseKey(SECRET.encode(), request.headers[NONCE])


def by_far_side(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """The same answer, signed by whoever knows the secret."""
    response.headers.update(key_of(request).headers(response.status_code, response.content))
    return response


def told(request: httpx2.Request, *lines: str) -> httpx2.Response:
    """An answer line by line, signed by whoever knows the secret."""
    key, places = key_of(request), range(1, len(lines) + 1)
    signed = [key.sign_line(place, line.encode()) for place, line in zip(places, lines, strict=True)]
    return httpx2.Response(200, content=b"\n\n".join([*signed, b""]))


async def test_a_call_is_signed_and_carries_only_ids_and_trains() -> None:
    wire = Wire(answer(202, TAKEN))

    assert await wire.workers().submit([RUN]) == [None]

    (call,) = wire.calls
    assert (call.method, call.url.path) == ("POST", "/jobs/take-up")
    assert json.loads(call.content) == {"runs": [{"metadata_id": 42, "train": "work"}]}
    now = float(call.headers["trax-timestamp"])
    keeper = CallVerifier({"default": SECRET.encode()})
    keeper.verify(dict(call.headers), "POST", "/jobs/take-up", now=now)
    check_body(dict(call.headers), call.content)


async def test_a_path_is_signed_as_servers_see_it() -> None:
    far = Far("memory://", "response")
    workers = HttpWorkers("http://far/a%20b/jobs", SECRET, transport=httpx2.ASGITransport(far.endpoint))
    unknown = Submission(metadata_id=1, external_id="x", train="work")

    async with far.h, far.endpoint:
        (refused,) = await workers.submit([unknown])

    assert refused == Refused("NotFound: there is no execution 1")


async def test_each_run_has_its_own_answer() -> None:
    wire = Wire(answer(202, {"answers": [None, "NotFound: there is no execution 42"]}))

    answers = await wire.workers().submit([RUN, RUN])

    assert answers == [None, Refused("NotFound: there is no execution 42")]


async def test_a_busy_endpoint_is_called_again_each_time_with_a_new_signature() -> None:
    wire = Wire(answer(503), answer(503), answer(202, TAKEN))

    assert await wire.workers().submit([RUN]) == [None]

    assert wire.waits == [1, 2]
    assert len({call.headers["trax-nonce"] for call in wire.calls}) == 3


@pytest.mark.parametrize(("after", "seconds"), [("3", 3), ("600", 30)])
async def test_a_retry_after_of_the_endpoint_is_respected(after: str, seconds: float) -> None:
    wire = Wire(answer(429, retry_after=after), answer(202, TAKEN))

    await wire.workers().submit([RUN])

    assert wire.waits == [seconds]


@pytest.mark.parametrize("status", [400, 401, 404, 500])
async def test_any_other_status_is_a_refusal_at_once_with_its_body(status: int) -> None:
    wire = Wire(httpx2.Response(status, text="x" * 5000))

    (refused,) = await wire.workers().submit([RUN])

    assert isinstance(refused, Refused)
    assert refused.reason == f"https://far/jobs/ responded {status}: {'x' * 2000}"
    assert (len(wire.calls), wire.waits) == (1, [])


@pytest.mark.parametrize("status", [200, 202, 401, 404])
async def test_an_unsigned_response_hands_over_no_run(status: int) -> None:
    (refused,) = await Wire(answer(status, TAKEN), is_forged=True).workers().submit([RUN])

    assert isinstance(refused, Refused)
    assert f"responded {status}, not signed by the endpoint (sent by a proxy, other secret" in refused.reason


async def test_a_response_to_another_call_hands_over_no_run() -> None:
    first = Wire(answer(202, TAKEN))
    await first.workers().submit([RUN])
    overheard = by_far_side(first.calls[0], answer(202, TAKEN))

    (refused,) = await Wire(overheard, is_forged=True).workers().submit([RUN])

    assert isinstance(refused, Refused)


@pytest.mark.parametrize("status", sorted(RETRY_STATUSES))
async def test_a_proxy_without_a_backend_need_not_sign(status: int) -> None:
    wire = Wire(answer(status), answer(202, TAKEN))

    assert await wire.workers().submit([RUN]) == [None]
    assert wire.waits == [1]


async def test_without_retries_the_first_answer_counts() -> None:
    wire = Wire(answer(503))

    (refused,) = await wire.workers(retry=CallRetry(max_retries=0)).submit([RUN])

    assert isinstance(refused, Refused)
    assert "responded 503" in refused.reason


async def test_after_the_last_retry_the_answer_is_a_refusal() -> None:
    wire = Wire(*(answer(502) for _ in range(6)))

    (refused,) = await wire.workers().submit([RUN])

    assert isinstance(refused, Refused)
    assert wire.waits == [1, 2, 4, 8, 16]


async def test_a_network_error_is_not_retried() -> None:
    wire = Wire(httpx2.ReadTimeout("too late"))

    with pytest.raises(httpx2.ReadTimeout):
        await wire.workers().submit([RUN])

    assert (len(wire.calls), wire.waits) == (1, [])


@pytest.mark.parametrize("text", ["", "<html>log in</html>", "[]", '{"answers": []}', '{"answers": 1}'])
async def test_an_unreadable_response_is_a_refusal(text: str) -> None:
    (refused,) = await Wire(httpx2.Response(200, text=text)).workers().submit([RUN])

    assert isinstance(refused, Refused)
    assert refused.reason.startswith("invalid response: ")


async def test_two_endpoints_get_only_their_trains(url: str) -> None:
    app, first, second = Trax(url), Wire(answer(202, TAKEN)), Wire(answer(202, TAKEN))

    @app.train
    async def here(_: int) -> None: ...

    @app.train
    async def there(_: int) -> None: ...

    app.route(here, to=first.workers(name="first"))
    app.route(there, to=second.workers(name="second"))
    async with Harness(app) as h:
        await app.queue(here, 1)
        await app.queue(there, 2)
        await h.run_until_idle()

    assert [json.loads(wire.calls[0].content)["runs"][0]["train"] for wire in (first, second)] == [
        "here",
        "there",
    ]


async def test_fifty_slow_calls_ten_at_a_time_last_as_long_as_five(url: str) -> None:
    """Each call takes two seconds, and time goes on only when ten of them wait: a virtual clock."""
    clock, under_way = 0, asyncio.Barrier(10)

    async def slow(_: httpx2.Request) -> httpx2.Response:
        nonlocal clock
        if await under_way.wait() == 0:
            clock += 2
        return answer(202, TAKEN)

    app = Trax(url, max_active_jobs=None, max_concurrent_dispatch=10)
    transport = httpx2.MockTransport(slow)
    app.submitters.default = HttpWorkers("http://far", SECRET, batch_size=1, transport=transport)

    @app.train
    async def work(_: int) -> None: ...

    async with asyncio.timeout(60), Harness(app) as h:
        await app.queue_many(work, range(50))
        await h.cycle("job_dispatcher")
        assert await h.cycle("hand_over") == 50

    assert clock == 10


class Far:
    """A near side and a far side in one process, and a train that does as it is told."""

    def __init__(self, url: str, mode: Mode) -> None:
        self.app = Trax(url, max_active_jobs=None)
        self.h = Harness(self.app)
        self.endpoint = self.app.http_endpoint(SECRET)
        self.workers = self.through(httpx2.ASGITransport(self.endpoint), mode=mode)
        log = logging.getLogger("far.work")

        @junction
        async def begin(what: str) -> list[str]:
            run = current()
            assert run
            await run.progress(0.5, "half of it")
            log.warning("%s is begun", what)
            return [what]

        @junction
        def end(words: list[str]) -> int:
            log.warning("%s is nearly done", words[0])
            match words[0]:
                case "later":
                    raise RetryAfter(timedelta(minutes=3), "busy")
                case "hopeless":
                    raise LookupError("there is no such thing")
                case _:
                    pass
            return len(words[0])

        retry = Retry(max_retries=2, delay=timedelta(minutes=1), give_up_on=(LookupError,))
        self.work = self.app.train("work", begin >> end, retry=retry)

    def through(self, transport: Any, **options: Any) -> HttpWorkers:
        return HttpWorkers("http://far/jobs", SECRET, transport=transport, **options)

    async def record(self, what: str) -> Metadata:
        self.app.submitters.default = self.workers
        entry = await self.app.queue(self.work, what)
        await self.h.cycle("job_dispatcher")
        await self.h.cycle("hand_over")
        if self.workers.keeps_records:
            receiver = self.endpoint._receiver
            assert receiver
            await receiver.wait_until_idle()
        entry = await self.app.work_queue.get(entry.id)
        self.entry = entry
        return (await self.app.executions.list())[0]


@pytest.fixture(params=["database", "response"])
async def far(url: str, request: pytest.FixtureRequest) -> AsyncGenerator[Far]:
    far = Far(url, request.param)
    async with asyncio.timeout(60), far.h, far.endpoint:
        yield far


async def test_a_run_leaves_the_same_record_wherever_it_is_kept(far: Far) -> None:
    record = await far.record("hello")

    await far.h.cycle("run_log")
    lines = [line.message for line in await far.app.executions.logs(record.id)]
    assert (record.state, record.output, record.submitter) == (State.COMPLETED, 5, "http")
    assert record.worker is not None
    assert [timing.name for timing in record.junctions] == ["begin", "end"]
    heard = dict.fromkeys(line for line in lines if line.startswith("hello"))  # by both sides, in one process
    assert list(heard) == ["hello is begun", "hello is nearly done"]


@pytest.mark.parametrize("url", ["memory", "sqlite"], indirect=True)
async def test_the_progress_of_a_run_is_in_its_record(far: Far) -> None:
    """Not on PostgreSQL: a note about a row that is being noted as handed over is passed over there."""
    record = await far.record("hello")

    assert (record.progress, record.progress_message) == (0.5, "half of it")


async def test_a_run_that_requests_a_later_retry_gets_it(far: Far) -> None:
    record = await far.record("later")

    assert (record.state, record.failure_exception, record.failure_junction) == (
        "failed",
        "RetryAfter",
        "end",
    )
    assert (far.entry.status, far.entry.scheduled_at) == (
        QueueStatus.QUEUED,
        far.h.now + timedelta(minutes=3),
    )


async def test_an_error_after_which_no_try_would_help_is_known_by_its_class(far: Far) -> None:
    record = await far.record("hopeless")

    (letter,) = await far.app.dead_letters.list()
    assert (record.failure_exception, record.failure_reason) == ("LookupError", "there is no such thing")
    assert "in end" in str(record.stack_trace)
    assert "it is not retried" in letter.reason


async def test_a_synchronous_run_is_recorded_once_and_returns_its_output(far: Far) -> None:
    assert await far.app.run(far.work, "hello", on=far.workers) == 5

    (record,) = await far.app.executions.list()
    assert (record.state, record.output, record.input) == (State.COMPLETED, 5, "hello")


async def test_an_error_of_a_synchronous_run_reaches_the_caller_and_the_record(far: Far) -> None:
    @far.app.train
    async def outer(what: str) -> int:
        return await far.app.run(far.work, what, on=far.workers)

    with pytest.raises(RemoteFailure, match="no such thing") as raised:
        await far.app.run(outer, "hopeless")

    inner, around = await far.app.executions.list()
    failures = [(one.failure_exception, one.failure_junction) for one in (inner, around)]
    assert failures == [("LookupError", "end")] * 2
    assert (inner.parent_id, raised.value.type) == (around.id, "LookupError")


async def test_a_synchronous_run_lasts_no_longer_than_the_timeout_of_its_train(url: str) -> None:
    async def hang(_: httpx2.Request) -> httpx2.Response:
        await asyncio.Event().wait()
        raise AssertionError

    far = Far(url, "database")
    hasty = far.app.train("hasty", far.work.route, timeout=timedelta(milliseconds=1))
    async with far.h:
        with pytest.raises(RunTimedOut, match="took longer than"):
            await far.app.run(hasty, "hello", on=far.through(httpx2.MockTransport(hang)))


@pytest.fixture
async def near(url: str) -> AsyncGenerator[Far]:
    """One whose runs are executed by whoever a test puts there."""
    far = Far(url, "response")
    async with asyncio.timeout(60), far.h:
        yield far


def answering(execute: Callable[[httpx2.Request], Awaitable[httpx2.Response]]) -> httpx2.MockTransport:
    async def answered(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("offer"):
            return by_far_side(request, answer(200, TAKEN))
        return await execute(request)

    return httpx2.MockTransport(answered)


async def test_a_run_whose_endpoint_vanishes_fails_and_is_retried(near: Far) -> None:
    async def vanish(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ReadError("connection reset")

    near.workers = near.through(answering(vanish), mode="response")
    record = await near.record("hello")

    assert (record.state, record.failure_exception) == (State.FAILED, RemoteLost.__name__)
    assert (near.entry.status, near.entry.dispatch_attempts) == (QueueStatus.QUEUED, 0)


async def test_an_incomplete_response_fails_the_run(near: Far) -> None:
    async def half(request: httpx2.Request) -> httpx2.Response:
        return told(request, '{"progress":[0.1,null]}', '{"of_the_future":1}')

    near.workers = near.through(answering(half), mode="response")
    record = await near.record("hello")

    assert "ended its response before the run ended" in str(record.failure_reason)


PROGRESS, DONE = '{"progress":[0.1,null]}', '{"done":5}'


FORGERIES: dict[str, Callable[[httpx2.Request], httpx2.Response]] = {
    "success": lambda _: httpx2.Response(200, text=DONE + "\n"),
    "refusal": lambda _: httpx2.Response(401, text="who are you?"),
    "unknown": lambda _: httpx2.Response(404, text="not found"),
    "gateway": lambda _: httpx2.Response(504, text="gateway timeout"),
    "changed": lambda call: httpx2.Response(200, content=told(call, DONE).content.replace(b":5", b":6")),
    "left out": lambda call: httpx2.Response(
        200, content=told(call, PROGRESS, DONE).content.split(b"\n\n")[1]
    ),
    "cut short": lambda call: httpx2.Response(200, content=told(call, DONE).content[:-6]),
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
async def test_an_unsigned_response_cannot_end_a_run(
    near: Far, forge: Callable[[httpx2.Request], httpx2.Response]
) -> None:
    """Nobody here knows what became of it: it counts as lost, and its retry policy decides."""

    async def somebody(request: httpx2.Request) -> httpx2.Response:
        return forge(request)

    near.workers = near.through(answering(somebody), mode="response")
    record = await near.record("hello")

    assert (record.state, record.failure_exception) == (State.FAILED, RemoteLost.__name__)
    assert "not signed by the endpoint" in str(record.failure_reason)
    assert near.entry.status is QueueStatus.QUEUED


async def test_a_run_delayed_by_a_proxy_is_requeued_uncounted(near: Far) -> None:
    async def put_off(_: httpx2.Request) -> httpx2.Response:
        return answer(503)

    near.workers = near.through(answering(put_off), mode="response", retry=CallRetry(max_retries=0))
    record = await near.record("hello")

    assert (record.state, record.failure_exception) == (State.CANCELLED, "Interrupted")
    assert near.entry.status is QueueStatus.QUEUED


async def test_a_refusal_by_the_endpoint_is_the_failure_of_the_run(near: Far) -> None:
    async def refuse(request: httpx2.Request) -> httpx2.Response:
        return by_far_side(request, answer(404, {"error": "no train is registered as 'work'"}))

    near.workers = near.through(answering(refuse), mode="response")
    record = await near.record("hello")

    assert (record.state, record.failure_exception) == (State.FAILED, "TraxError")
    assert "no train is registered as 'work'" in str(record.failure_reason)


async def test_text_may_hold_any_separator_of_lines(near: Far) -> None:
    async def separate(request: httpx2.Request) -> httpx2.Response:
        return told(request, '{"progress":[0.1,"a\u2028b\x85c"]}', DONE)

    near.workers = near.through(answering(separate), mode="response")
    record = await near.record("hello")

    assert (record.state, record.output) == (State.COMPLETED, 5)


async def test_a_run_that_reached_no_endpoint_is_requeued_uncounted(near: Far) -> None:
    async def nobody(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    near.workers = near.through(answering(nobody), mode="response")
    record = await near.record("hello")

    assert (record.state, record.failure_exception) == (State.CANCELLED, "Interrupted")
    assert near.entry.status is QueueStatus.QUEUED


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
async def test_a_stopping_server_disconnects_and_requeues_the_run(url: str) -> None:
    called, hung_up = asyncio.Event(), asyncio.Event()

    async def hang(_: httpx2.Request) -> httpx2.Response:
        called.set()
        try:
            await asyncio.Event().wait()
        finally:
            hung_up.set()
        raise AssertionError

    far = Far(url, "response")
    far.app.submitters.default = far.through(answering(hang), mode="response")
    async with asyncio.timeout(60):
        await far.app.settings.update(shutdown_timeout=0)
        await far.app.start("scheduler")
        await far.app.queue(far.work, "hello")
        await called.wait()
        assert far.app.active_trains == ["work"]
        await far.app.stop()

        (record,), (entry,) = await far.app.executions.list(), await far.app.work_queue.list()
        assert hung_up.is_set()
        assert (record.state, record.failure_exception) == (State.CANCELLED, "Interrupted")
        assert (entry.status, entry.dispatch_attempts) == (QueueStatus.QUEUED, 0)
        assert await far.app.workers.list() == []
    far.app.close()


async def test_an_output_that_our_code_cannot_read_is_recorded_as_completed(
    near: Far, caplog: pytest.LogCaptureFixture
) -> None:
    async def strange(request: httpx2.Request) -> httpx2.Response:
        return told(request, '{"done":"five"}')

    near.workers = near.through(answering(strange), mode="response")
    record = await near.record("hello")

    assert record.state == State.COMPLETED
    assert "train 'work': invalid output" in record.output["_notSaved"]
    assert "(got 'five')" in record.output["_notSaved"]
    assert "output not saved" in caplog.text


async def test_a_refused_offer_is_a_failed_hand_over_and_starts_no_run(near: Far) -> None:
    near.workers = near.through(httpx2.MockTransport(lambda _: answer(401)), mode="response")
    record = await near.record("hello")

    assert (record.failure_junction, near.entry.dispatch_attempts) == ("dispatch_jobs", 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": ""}, "must be like https://host/path"),
        ({"url": "far/jobs"}, "must be like https://host/path"),
        ({"url": "https://far/jobs?x=1"}, "must be like https://host/path"),
        ({"url": None}, "must be like https://host/path"),
        ({"secret": "short"}, "at least 16 characters"),
        ({"mode": "magic"}, "mode must be 'database' or 'response'"),
        ({"key": ""}, "a key id must be printable ASCII text"),
    ],
)
def test_impossible_options_are_refused_when_the_submitter_is_created(
    options: dict[str, Any], said: str
) -> None:
    make: Any = HttpWorkers
    with pytest.raises(DefinitionError, match=said) as refused:
        make(**({"url": "https://far", "secret": SECRET} | options))

    assert "short" not in str(refused.value)


def test_the_secret_is_never_shown() -> None:
    workers = HttpWorkers("https://far", SECRET)

    assert SECRET not in repr(workers) + repr(workers._endpoint)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)

    with pytest.raises(MissingExtra, match=r"pip install 'trax-scheduler\[http\]'"):
        HttpWorkers("https://far", SECRET)
