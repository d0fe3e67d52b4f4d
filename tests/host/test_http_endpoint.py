"""The endpoint of HTTP workers: its responses, authorization and refusals."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from fastapi import FastAPI

from trax import Trax, current
from trax.errors import StoreUnavailable
from trax.remote.http.signing import NONCE, SIGNATURE, ResponseKey, call_headers
from trax.remote.receiver import Receiver
from trax.worker.job_runner import RUN_FIELDS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trax.remote.http.endpoint import HttpEndpoint

SECRET = "a secret for the tests"
MOST = 2000
NOON = 1_800_000_000.0


class Caller:
    """Calls an endpoint as a client would, in this process, and may lie."""

    def __init__(self, endpoint: HttpEndpoint | FastAPI) -> None:
        self.client = httpx2.AsyncClient(transport=httpx2.ASGITransport(endpoint), base_url="http://far")

    async def __call__(
        self,
        operation: str,
        value: Any = None,
        *,
        body: bytes | None = None,
        now: float = NOON,
        changed: dict[str, str] | None = None,
    ) -> httpx2.Response:
        body = json.dumps(value or {}).encode() if body is None else body
        headers = call_headers("default", SECRET.encode(), "POST", f"/jobs/{operation}", body, now=now)
        return await self.send(operation, body, headers | (changed or {}))

    async def send(self, operation: str, body: bytes, headers: dict[str, str]) -> httpx2.Response:
        return await self.client.post(f"/jobs/{operation}", content=body, headers=headers)

    async def close(self) -> None:
        await self.client.aclose()


def app_at(url: str) -> Trax:
    app = Trax(url)

    @app.train
    async def double(number: int) -> int:
        return 2 * number

    @app.train
    def wake(name: str) -> None:
        run = current()
        assert run
        run.sync.activate(name, 1)

    return app


def endpoint_of(app: Trax, **options: Any) -> HttpEndpoint:
    return app.http_endpoint(SECRET, clock=lambda: NOON, **options)


@pytest.fixture
async def call() -> AsyncGenerator[Caller]:
    app = app_at("memory://")
    async with endpoint_of(app, max_body_bytes=MOST) as endpoint:
        caller = Caller(endpoint)
        yield caller
        await caller.close()
    app.close()


def key_of(answer: httpx2.Response) -> ResponseKey:
    return ResponseKey(SECRET.encode(), answer.request.headers[NONCE])


def is_signed(answer: httpx2.Response) -> bool:
    return key_of(answer).is_response(answer.status_code, answer.headers, answer.content)


def lines(answer: httpx2.Response) -> list[Any]:
    """What the lines say, each signed at its place."""
    told = [line for line in answer.content.splitlines() if line]
    return [json.loads(key_of(answer).line_text(place, line) or b"") for place, line in enumerate(told, 1)]


FACTS = {"metadata_id": 1, "external_id": "x1", "train": "double"}


async def test_a_train_is_executed_without_any_database() -> None:
    app = app_at("postgresql://nobody@127.0.0.1:1/nothing")
    call = Caller(endpoint_of(app))

    answer = await call("execute", {"train": "double", "facts": FACTS, "input": 21})

    assert (answer.status_code, lines(answer)) == (200, [{"junction": "double"}, {"done": 42}])
    await call.close()


async def test_an_input_that_is_refused_is_the_failure_of_the_run(call: Caller) -> None:
    answer = await call("execute", {"train": "double", "facts": FACTS, "input": "many"})

    (ending,) = lines(answer)
    assert (answer.status_code, ending["failed"]["type"]) == (200, "InvalidInput")
    assert "train 'double': invalid input" in ending["failed"]["message"]


async def test_activating_dependents_over_http_is_refused_with_the_reason(
    call: Caller,
) -> None:
    facts = {**FACTS, "train": "wake", "manifest": "hourly"}

    answer = await call("execute", {"train": "wake", "facts": facts, "input": "other"})

    assert "but its process has no database" in lines(answer)[-1]["failed"]["message"]


async def test_a_forged_call_is_refused_and_logged(call: Caller, caplog: pytest.LogCaptureFixture) -> None:
    answer = await call("offer", {"runs": []}, changed={SIGNATURE: "0" * 64})

    assert (answer.status_code, answer.json()["error"].startswith("invalid signature")) == (
        401,
        True,
    )
    assert "call of /jobs/offer from 127.0.0.1 rejected with 401: invalid signature" in caplog.text


async def test_an_unsigned_call_is_refused(call: Caller) -> None:
    answer = await call.send("offer", b"{}", {})

    assert (answer.status_code, "the call is not signed" in answer.text) == (401, True)


@pytest.mark.parametrize("changed", [{SIGNATURE: "0" * 64}, {SIGNATURE: ""}, {"trax-key": "other"}])
async def test_the_body_of_an_unauthorized_call_is_not_read(changed: dict[str, str]) -> None:
    headers = call_headers("default", SECRET.encode(), "POST", "/jobs/offer", b"{}", now=NOON) | changed
    heard: list[Any] = []

    async def receive() -> Any:
        raise AssertionError("nobody reads this")

    async def send(message: Any) -> None:
        heard.append(message)

    raw = [(name.encode(), text.encode()) for name, text in headers.items()]
    scope = {"type": "http", "method": "POST", "path": "/jobs/offer", "headers": raw}
    await endpoint_of(app_at("memory://"))(scope, receive, send)

    assert heard[0]["status"] == 401
    assert (b"connection", b"close") in heard[0]["headers"]
    assert SIGNATURE.encode() not in dict(heard[0]["headers"])


async def test_a_replayed_call_is_refused_before_its_body_is_read(call: Caller) -> None:
    async def unread() -> AsyncGenerator[bytes]:
        raise AssertionError("nobody reads this")
        yield b""

    headers = call_headers("default", SECRET.encode(), "POST", "/jobs/offer", b'{"runs":[]}', now=NOON)
    await call.send("offer", b'{"runs":[]}', headers)

    answer = await call.send("offer", unread(), headers)  # pyright: ignore[reportArgumentType]

    assert (answer.status_code, is_signed(answer)) == (409, False)


async def test_another_body_than_the_one_that_was_signed_is_refused(call: Caller) -> None:
    headers = call_headers("default", SECRET.encode(), "POST", "/jobs/offer", b'{"runs":[]}', now=NOON)

    answer = await call.send("offer", b'{"runs":[1]}', headers)

    error = "invalid body: its hash differs from the signed one"
    assert (answer.status_code, answer.json()["error"]) == (401, error)


async def test_a_body_that_does_not_arrive_is_waited_for_so_long_and_so_many_times_at_once() -> None:
    arriving = asyncio.Event()

    async def slow() -> AsyncGenerator[bytes]:
        arriving.set()
        yield b"{"
        await asyncio.Event().wait()

    options: Any = {"body_timeout": timedelta(seconds=0.2), "max_receiving": 1}
    call = Caller(endpoint_of(app_at("memory://"), **options))
    headers = call_headers("default", SECRET.encode(), "POST", "/jobs/offer", b"{}", now=NOON)
    waiting = asyncio.create_task(call.send("offer", slow(), headers))  # pyright: ignore[reportArgumentType]
    await arriving.wait()
    busy = await call("offer", {"runs": []})
    late = await waiting
    after = await call("offer", {"runs": []})

    assert (late.status_code, late.json()) == (408, {"error": "the body did not arrive within 0.2 s"})
    assert (busy.status_code, busy.headers["retry-after"]) == (503, "1")
    assert after.status_code == 200
    assert all(map(is_signed, (late, busy, after)))
    await call.close()


async def test_responses_to_authorized_calls_are_signed_also_when_they_refuse(call: Caller) -> None:
    answers = [
        await call("offer", {"runs": []}),
        await call("take-up", {"runs": []}),
        await call("nothing"),
        await call("offer", body=b"not json"),
        await call("offer", body=b"x" * (MOST + 1)),
    ]

    assert [answer.status_code for answer in answers] == [200, 202, 404, 400, 413]
    assert all(map(is_signed, answers))


async def test_many_calls_that_are_refused_are_one_line_in_the_log(
    call: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        await call.send("offer", b"{}", {})

    assert sum("rejected with 401" in line for line in caplog.messages) == 1


async def test_an_unknown_key_is_refused(call: Caller) -> None:
    answer = await call("offer", {"runs": []}, changed={"trax-key": "of last year"})

    assert (answer.status_code, answer.json()) == (401, {"error": "unknown key 'of last year'"})


async def test_a_stale_call_is_refused(call: Caller) -> None:
    answer = await call("offer", {"runs": []}, now=NOON - 400)

    assert (answer.status_code, "check the clocks" in answer.text) == (401, True)


async def test_a_replayed_call_is_refused(call: Caller) -> None:
    body = b'{"runs":[]}'
    headers = call_headers("default", SECRET.encode(), "POST", "/jobs/offer", body, now=NOON)

    first, second = [await call.send("offer", body, headers) for _ in range(2)]

    assert (first.status_code, second.status_code) == (200, 409)


async def test_a_call_replayed_at_another_operation_is_forged(call: Caller) -> None:
    body = b'{"runs":[]}'
    headers = call_headers("default", SECRET.encode(), "POST", "/jobs/offer", body, now=NOON)

    assert (await call.send("take-up", body, headers)).status_code == 401


async def test_an_oversized_body_is_refused_also_without_a_declared_length(call: Caller) -> None:
    async def parts() -> AsyncGenerator[bytes]:
        for _ in range(MOST):
            yield b"xx"

    declared = await call("offer", body=b"x" * (MOST + 1))
    whole = b"x" * 2 * MOST
    headers = call_headers("default", SECRET.encode(), "POST", "/jobs/offer", whole, now=NOON)
    streamed = await call.send("offer", parts(), headers)  # pyright: ignore[reportArgumentType]

    assert (declared.status_code, streamed.status_code) == (413, 413)
    assert declared.json() == {"error": f"the body is larger than {MOST} bytes"}


@pytest.mark.parametrize(
    ("operation", "body", "status"),
    [
        ("offer", b"not json", 400),
        ("offer", b"[]", 400),
        ("offer", b"[" * 2_000, 400),
        ("offer", b'{"runs": 1}', 400),
        ("offer", b'{"runs": [{"metadata_id": "1", "train": "double"}]}', 400),
        ("offer", b'{"runs": [7]}', 400),
        ("execute", b'{"train": "double", "input": 1}', 400),
        ("execute", b'{"train": ["double"], "facts": {}, "input": 1}', 400),
        ("execute", b'{"train": "treble", "facts": {}, "input": 1}', 404),
        ("run", b'{"train": "treble", "input": 1}', 404),
        ("nothing", b"{}", 404),
        ("", b"{}", 404),
    ],
)
async def test_an_unreadable_call_is_refused_with_a_reason(
    call: Caller, operation: str, body: bytes, status: int
) -> None:
    answer = await call(operation, body=body)

    assert (answer.status_code, bool(answer.json()["error"])) == (status, True)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({}, "metadata_id must be an id"),
        ({**FACTS, "metadata_id": True}, "metadata_id must be an id"),
        ({**FACTS, "external_id": 7}, "external_id must be text"),
        ({**FACTS, "manifest": ["hourly"]}, "manifest must be text"),
        ({**FACTS, "attempt": 0}, "attempt must be a whole number from 1"),
        ({**FACTS, "parent_id": "1"}, "parent_id must be an id"),
        ({**FACTS, "scheduled_for": "noon"}, "scheduled_for is not an ISO 8601 datetime"),
        ({**FACTS, "scheduled_for": "2027-03-01T12:00:00"}, "scheduled_for must be a datetime with a time"),
        ({**FACTS, "reporter": None}, "facts: unknown field 'reporter'"),
        ({**FACTS, "secret_words": []}, "facts: unknown field 'secret_words'"),
    ],
)
async def test_the_facts_of_a_run_are_its_fields_and_nothing_else(
    call: Caller, facts: dict[str, Any], reason: str
) -> None:
    answer = await call("execute", {"train": "double", "facts": facts, "input": 1})

    assert (answer.status_code, answer.json()["error"].startswith(reason)) == (400, True), answer.text


async def test_every_fact_that_a_server_sends_is_accepted(call: Caller) -> None:
    more = {"manifest": "hourly", "attempt": 2, "parent_id": 3, "scheduled_for": "2027-03-01 12:00:00+00:00"}

    answer = await call("execute", {"train": "double", "facts": FACTS | more, "input": 1})

    assert set(RUN_FIELDS) == {*FACTS, *more}
    assert lines(answer)[-1] == {"done": 2}


@pytest.mark.parametrize("parent", ["1", True, -1, 2**63, [1], {}])
async def test_a_parent_is_an_id(call: Caller, parent: Any) -> None:
    answer = await call("run", {"train": "double", "parent_id": parent, "input": 1})

    assert (answer.status_code, answer.json()["error"][:23]) == (400, "parent_id must be an id")


async def test_any_text_of_a_run_arrives(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lone surrogate as a question mark, and a log line also with wrong arguments."""
    monkeypatch.setattr(type(caplog.handler), "handleError", print)  # else pytest raises in the job
    app = app_at("memory://")

    @app.train
    async def shout(text: str) -> None:
        half = text + chr(0xD800)
        logging.getLogger("jobs").warning("%s cups of %s", 2, half)
        logging.getLogger("jobs").warning("%d cups", half)
        run = current()
        assert run
        await run.progress(0.5, half)
        raise RuntimeError(half)

    assert shout
    call = Caller(endpoint_of(app))
    answer = await call("execute", {"train": "shout", "facts": FACTS | {"train": "shout"}, "input": "a"})

    told = [event for event in lines(answer) if "junction" not in event]
    assert [event["log"]["message"] for event in told if "log" in event] == [
        "2 cups of a?",
        "%d cups (invalid log arguments)",
    ]
    assert [event["progress"] for event in told if "progress" in event] == [[0.5, "a?"]]
    assert told[-1]["failed"]["message"] == "a?"
    await call.close()


async def test_only_post_is_answered(call: Caller) -> None:
    answer = await call.client.get("/jobs/offer")

    assert answer.status_code == 405


async def test_an_offer_is_answered_for_each_train(call: Caller) -> None:
    runs = [{"metadata_id": 1, "train": "double"}, {"metadata_id": 2, "train": "dubble"}]

    answers = (await call("offer", {"runs": runs})).json()["answers"]

    assert answers == [None, "no train is registered as 'dubble'; did you mean 'double'?"]


async def test_a_run_that_does_not_exist_is_not_claimed(call: Caller) -> None:
    answer = await call("take-up", {"runs": [{"metadata_id": 7, "train": "double"}]})

    assert (answer.status_code, answer.json()) == (202, {"answers": ["NotFound: there is no execution 7"]})


async def test_without_its_database_the_endpoint_asks_for_a_retry(
    call: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any) -> bool:
        raise StoreUnavailable("restarting")

    monkeypatch.setattr(Receiver, "claim_by_ids", away)
    answer = await call("take-up", {"runs": [{"metadata_id": 7, "train": "double"}]})

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


async def test_behind_a_proxy_that_changes_the_path_the_path_of_callers_is_what_counts() -> None:
    """Callers sign /public/jobs/offer; the proxy passes it on as /jobs/offer."""
    call = Caller(endpoint_of(app_at("memory://"), path="/public/jobs"))
    body = b'{"runs":[]}'
    headers = call_headers("default", SECRET.encode(), "POST", "/public/jobs/offer", body, now=NOON)

    assert (await call.send("offer", body, headers)).status_code == 200
    await call.close()


async def test_mounted_in_another_application_it_answers_below_its_own_path() -> None:
    web = FastAPI()
    web.mount("/jobs", endpoint_of(app_at("memory://")))
    call = Caller(web)

    answer = await call("offer", {"runs": [{"metadata_id": 1, "train": "double"}]})

    assert (answer.status_code, answer.json()) == (200, {"answers": [None]})
    await call.close()


async def test_the_life_of_a_server_is_the_life_of_the_endpoint(url: str) -> None:
    app = app_at(url)
    endpoint = endpoint_of(app)
    said: list[str] = []
    call = Caller(endpoint)
    await call("take-up", {"runs": [{"metadata_id": 7, "train": "double"}]})
    before = len(await app.workers.list())
    messages = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> Any:
        return {"type": next(messages)}

    async def send(message: Any) -> None:
        said.append(message["type"])

    await endpoint({"type": "lifespan"}, receive, send)

    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert (before, await app.workers.list()) == (1, [])
    await call.close()
    app.close()
