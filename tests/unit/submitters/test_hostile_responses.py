"""A hostile server at the URL of an HTTP worker cannot fill the memory of a scheduler."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import gzip
import json
from itertools import repeat
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from typing_extensions import override

from trax import Refused, Submission
from trax.errors import DefinitionError, RemoteLost
from trax.remote.http import workers as http_workers
from trax.remote.http.client import MAX_BODY_BYTES, MAX_EMPTY_LINES, CallRetry
from trax.remote.http.signing import NONCE, ResponseKey
from trax.remote.http.workers import HttpWorkers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

SECRET = "a secret for the tests"
RUN = Submission(metadata_id=42, external_id="x1", train="work", input="7")
PIECE = b"x" * 65536
BOMB = gzip.compress(b'{"answers": [null]}' + b" " * 64 * 1024 * 1024)


class Pieces(httpx2.AsyncByteStream):
    """The body of an answer, and how many of its bytes were taken."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces
        self.taken = 0

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            self.taken += len(piece)
            yield piece


def endless() -> Pieces:
    """Far more than may be read; a test that fails still ends."""
    return Pieces(repeat(PIECE, 1000))


class Stranger:
    """Answers every call with these bytes and headers, and keeps the calls."""

    def __init__(self, body: Pieces, status: int = 200, **headers: str) -> None:
        self.body = body
        self.calls: list[httpx2.Request] = []
        self._status = status
        self._headers = {name.replace("_", "-"): text for name, text in headers.items()}

    def workers(self, **options: Any) -> HttpWorkers:
        transport = httpx2.MockTransport(self._answer)
        workers = HttpWorkers("https://far/jobs", SECRET, transport=transport, **options)
        workers._endpoint.sleep = self._sleep
        return workers

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.calls.append(request)
        return httpx2.Response(self._status, headers=self._headers, stream=self.body)

    async def _sleep(self, _: float) -> None:
        await asyncio.sleep(0)


async def lines_of(workers: HttpWorkers) -> list[bytes]:
    async with workers._endpoint.stream("execute", b"{}") as lines:
        return [line async for line in lines]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "GZIP", "identity, gzip"])
async def test_a_compressed_answer_is_refused_and_not_read(encoding: str) -> None:
    stranger = Stranger(Pieces([BOMB]), content_encoding=encoding)

    (refused,) = await stranger.workers().submit([RUN])
    with pytest.raises(RemoteLost, match="encoded as"):
        await lines_of(stranger.workers())

    assert isinstance(refused, Refused)
    assert f"is encoded as '{encoding.lower()}'; expected identity" in refused.reason
    assert stranger.body.taken == 0
    assert {call.headers["accept-encoding"] for call in stranger.calls} == {"identity"}


async def test_a_compressed_refusal_or_retry_response_is_not_decompressed() -> None:
    for status in (401, 404, 500, 503):
        stranger = Stranger(Pieces([BOMB]), status, content_encoding="gzip")
        retry = CallRetry(max_retries=1)

        (refused,) = await stranger.workers(retry=retry).submit([RUN])
        with pytest.raises(Exception, match="encoded as 'gzip'"):
            await lines_of(stranger.workers(retry=retry))

        assert isinstance(refused, Refused)
        assert stranger.body.taken == 0


@pytest.mark.parametrize("status", [200, 404])
async def test_an_endless_response_is_read_up_to_the_limit(status: int) -> None:
    stranger = Stranger(endless(), status)

    (refused,) = await stranger.workers().submit([RUN])

    assert isinstance(refused, Refused)
    assert "not signed by the endpoint" in refused.reason
    assert f"it is longer than {MAX_BODY_BYTES} bytes" in refused.reason
    assert stranger.body.taken <= MAX_BODY_BYTES + len(PIECE)


async def test_an_endless_line_is_read_up_to_the_limit() -> None:
    stranger = Stranger(endless())
    workers = stranger.workers(max_line_bytes=1_000_000)

    with pytest.raises(RemoteLost, match="longer than 1000000 bytes"):
        await lines_of(workers)

    assert stranger.body.taken <= 1_000_000 + len(PIECE)
    assert workers._endpoint._buffered_bytes == 0


async def test_endless_empty_lines_are_read_up_to_the_limit() -> None:
    stranger = Stranger(Pieces(repeat(b"\n" * 1000, 1000)))

    with pytest.raises(RemoteLost, match="empty lines, and no other"):
        await lines_of(stranger.workers())

    assert stranger.body.taken <= MAX_EMPTY_LINES + 1000


async def test_the_incomplete_lines_of_many_answers_are_limited_together() -> None:
    workers = Stranger(Pieces([PIECE])).workers()
    workers._endpoint.max_buffered_bytes = 10 * len(PIECE)
    held = asyncio.Event()

    async def begun() -> AsyncIterator[bytes]:
        yield PIECE
        await held.wait()

    async def read() -> list[bytes]:
        return [line async for line in workers._endpoint._split(begun())]

    reading = [asyncio.create_task(read()) for _ in range(12)]
    for _ in range(100):  # turns of the loop: enough for each to read what there is
        await asyncio.sleep(0)
    most = workers._endpoint._buffered_bytes
    held.set()
    ended = await asyncio.gather(*reading, return_exceptions=True)

    assert most == 10 * len(PIECE)
    assert sum(isinstance(each, RemoteLost) for each in ended) == 2
    assert workers._endpoint._buffered_bytes == 0


async def test_nothing_is_decoded_before_its_signature_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = list[Any]()
    monkeypatch.setattr(http_workers, "parse_line", decoded.append)
    deep = b"[" * 100_000

    (refused,) = await Stranger(Pieces([deep])).workers().submit([RUN])
    with pytest.raises(RemoteLost, match="line 1 of the response"):
        await lines_of(Stranger(Pieces([deep, b"\n"])).workers())

    assert isinstance(refused, Refused)
    assert decoded == []


async def test_a_long_line_in_many_pieces_arrives_whole() -> None:
    text = json.dumps({"done": "x" * 300_000}).encode()

    def answer(request: httpx2.Request) -> httpx2.Response:
        line = ResponseKey(SECRET.encode(), request.headers[NONCE]).sign_line(1, text) + b"\n"
        return httpx2.Response(200, stream=Pieces(line[at : at + 1000] for at in range(0, len(line), 1000)))

    workers = HttpWorkers("https://far/jobs", SECRET, transport=httpx2.MockTransport(answer))

    assert await lines_of(workers) == [text]


async def test_a_redirect_is_not_followed_with_a_signed_call() -> None:
    stranger = Stranger(Pieces([]), 307, location="https://elsewhere/jobs/take-up")

    (refused,) = await stranger.workers(follow_redirects=True).submit([RUN])

    assert isinstance(refused, Refused)
    assert [call.url.host for call in stranger.calls] == ["far"]


@pytest.mark.parametrize("after", ["Mon, 01 Jan 2027 00:00:00 +99999999999999", "9" * 5000, "-1", "soon"])
async def test_no_retry_after_breaks_a_call(after: str) -> None:
    stranger = Stranger(Pieces([]), 503, retry_after=after)

    (refused,) = await stranger.workers(retry=CallRetry(max_retries=1)).submit([RUN])

    assert isinstance(refused, Refused)
    assert len(stranger.calls) == 2


def test_a_line_needs_room_for_something() -> None:
    with pytest.raises(DefinitionError, match="max_line_bytes"):
        HttpWorkers("https://far/jobs", SECRET, max_line_bytes=0)
