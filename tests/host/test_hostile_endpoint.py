"""Whatever is posted at the endpoint of HTTP workers, the answer is clear, and a job beside it is executed.

`TRAX_HOSTILE_EXAMPLES=500 .venv/bin/pytest tests/host/test_hostile_endpoint.py` draws more.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.hostile import BODIES, DRAWN, IN_BODIES, TEXTS, WANTED, json_values, nested, sample, texts

from trax import Trax
from trax.escapes import visible_text
from trax.remote.http.signing import BODY_HASH, KEY, NONCE, SIGNATURE, TIMESTAMP, call_headers
from trax.worker.capture import LogLimit

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import TypeAlias

    Build: TypeAlias = Callable[[Any], dict[str, Any]]

SECRET = "a secret for the tests"
NOON = 1_800_000_000.0
LONGEST_REASON = 1_000
IN_PLACE = 100 if WANTED else 8
FACTS: dict[str, Any] = {"metadata_id": 1, "external_id": "x1", "train": "double"}


def build_with_fact(name: str, value: Any) -> dict[str, Any]:
    return {"train": "double", "facts": {**FACTS, name: value}, "input": 1}


PLACES: dict[str, tuple[str, Build]] = {
    "offer runs": ("offer", lambda value: {"runs": value}),
    "offer run": ("offer", lambda value: {"runs": [value]}),
    "offer train": ("offer", lambda value: {"runs": [{"metadata_id": 1, "train": value}]}),
    "take-up run": ("take-up", lambda value: {"runs": [value, value]}),
    "take-up metadata_id": (
        "take-up",
        lambda value: {"runs": 2 * [{"metadata_id": value, "train": "double"}]},
    ),
    "execute train": ("execute", lambda value: {"train": value, "facts": FACTS, "input": 1}),
    "execute facts": ("execute", lambda value: {"train": "double", "facts": value, "input": 1}),
    "execute input": ("execute", lambda value: {"train": "double", "facts": FACTS, "input": value}),
    "run train": ("run", lambda value: {"train": value, "input": 1}),
    "run parent_id": ("run", lambda value: {"train": "double", "parent_id": value, "input": 1}),
    "run input": ("run", lambda value: {"train": "double", "input": value}),
    **{
        f"facts {name}": (
            "execute",
            partial(build_with_fact, name),
        )
        for name in (
            *FACTS,
            "manifest",
            "attempt",
            "parent_id",
            "scheduled_for",
            "cancellation",
            "a\nb\ud800",
        )
    },
}
VALUES = (*IN_BODIES, *TEXTS, nested(500))


class FarSide:
    """An endpoint, called with any path, headers and body."""

    def __init__(self, url: str) -> None:
        self.runner = asyncio.Runner()
        self.app = Trax(url)

        @self.app.train
        async def double(number: int) -> int:
            return 2 * number

        assert double
        self._stack = AsyncExitStack()
        self.endpoint = self.app.http_endpoint(SECRET, clock=lambda: NOON)
        self.runner.run(self._stack.enter_async_context(self.endpoint))

    def close(self) -> None:
        self.runner.run(self._stack.aclose())
        self.app.close()
        self.runner.close()

    def post(
        self, operation: str, body: bytes, *changed: tuple[str, str], caller: str = "far"
    ) -> tuple[int, Any]:
        """The status and the answer; of a streamed one, its last line."""
        path = f"/jobs/{operation}"
        headers = call_headers("default", SECRET.encode(), "POST", path, body, now=NOON)
        headers.update(changed)
        raw = [(name.encode(), text.encode("latin-1", "replace")) for name, text in headers.items()]
        scope = {"type": "http", "method": "POST", "path": path, "headers": raw, "client": (caller, 1)}
        return self.runner.run(self._call(scope, body))

    async def _call(self, scope: Any, body: bytes) -> tuple[int, Any]:
        sent: list[Any] = []
        to_read = [{"type": "http.request", "body": body}]

        async def receive() -> Any:
            return to_read.pop() if to_read else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        async with asyncio.timeout(20):
            await self.endpoint(scope, receive, send)
        start, *parts = sent
        is_stream = (b"content-type", b"application/x-ndjson") in start["headers"]
        answer: Any = json.loads(b"".join(part["body"] for part in parts).splitlines()[-1])
        return start["status"], answer[1] if is_stream else answer

    def go_on(self) -> None:
        """A job beside all that is executed."""
        good = json.dumps({"train": "double", "facts": FACTS, "input": 21}).encode()
        assert self.post("execute", good) == (200, {"done": 42})


@pytest.fixture
def far(url: str) -> Generator[FarSide]:
    opened = FarSide(url)
    yield opened
    opened.close()


def problem_of(status: int, answer: Any) -> str | None:
    """What is wrong with an answer to a call that is signed well."""
    match (status, answer):
        case ((200 | 202), {"answers": [*_]} | {"done": _}):
            return None
        case 200, {"failed": {"type": "InvalidInput", "message": str(reason)}}:
            return None if reason else "no reason"
        case ((400 | 401 | 404), {"error": str(reason)}):
            is_clear = visible_text(reason) == reason and 0 < len(reason) < LONGEST_REASON
            return None if is_clear else f"unclear: {reason[:200]!r}"
        case _:
            return f"{status} {str(answer)[:300]}"


def written(value: Any) -> bytes:
    return json.dumps(value).encode()


def assert_log_is_clear(caplog: pytest.LogCaptureFixture) -> None:
    assert [record for record in caplog.records if record.exc_info] == []
    assert [
        line for line in caplog.messages if visible_text(line) != line or len(line) > LONGEST_REASON
    ] == []


def test_no_value_of_a_request_breaks_the_endpoint(far: FarSide, caplog: pytest.LogCaptureFixture) -> None:
    calls = [
        (operation, written(build(value)))
        for place, (operation, build) in PLACES.items()
        for value in sample(ascii(place), VALUES, IN_PLACE)
    ]
    calls += [(operation, body) for operation in ("offer", "take-up", "execute", "run") for body in BODIES]

    answers = [(operation, body[:200], far.post(operation, body)) for operation, body in calls]

    problems = [
        f"{operation} {body}: {problem}"
        for operation, body, answer in answers
        if (problem := problem_of(*answer))
    ]

    assert not problems, "\n".join(problems)
    assert_log_is_clear(caplog)
    far.go_on()


@pytest.mark.parametrize("url", ["memory"], indirect=True)
def test_a_random_request_does_not_break_the_endpoint(far: FarSide, caplog: pytest.LogCaptureFixture) -> None:
    @DRAWN
    @given(
        requests=st.lists(st.tuples(st.sampled_from(sorted(PLACES)), json_values), min_size=5, max_size=20)
    )
    def story(requests: list[tuple[str, Any]]) -> None:
        for place, value in requests:
            operation, build = PLACES[place]
            assert problem_of(*far.post(operation, written(build(value)))) is None
        far.go_on()

    story()
    assert_log_is_clear(caplog)


@pytest.mark.parametrize("url", ["memory"], indirect=True)
def test_no_path_header_or_address_breaks_the_endpoint_or_its_log(
    far: FarSide, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(far.endpoint, "_log", LogLimit(every_seconds=0))  # every line

    @DRAWN
    @given(
        operation=texts | st.sampled_from(TEXTS),
        name=st.sampled_from([KEY, TIMESTAMP, NONCE, BODY_HASH, SIGNATURE, "content-length"]),
        value=texts | st.sampled_from(TEXTS),
    )
    def story(operation: str, name: str, value: str) -> None:
        unknown, forged = far.post(operation, b"{}", caller=value), far.post("offer", b"{}", (name, value))

        assert problem_of(*unknown) is None
        assert forged[0] in ({400, 413} if name == "content-length" else {401}), forged
        assert problem_of(*forged) is None or forged[0] == 413
        far.go_on()

    story()
    assert_log_is_clear(caplog)


@pytest.mark.parametrize("url", ["memory"], indirect=True)
def test_a_path_cannot_forge_a_line_of_the_log(far: FarSide, caplog: pytest.LogCaptureFixture) -> None:
    path = "x\r\n2027-03-01 ERROR all is lost\x1b[31m\ud800"

    status, _ = far.post(path, b"{}", caller="1.2.3.4\nroot")

    [line] = caplog.messages
    assert (status, line.count("\n")) == (404, 0)
    assert f"call of {visible_text('/jobs/' + path)} from 1.2.3.4\\nroot rejected with 404" in line
