"""Signed calls of one far side: made again when they are put off, not when nobody knows what came of them.

Only a signed answer is the far side's. Whatever else comes back was said by somebody on the way: it can put a
call off or break it, and nothing else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from trax.errors import DefinitionError, RemoteLost, TraxError, shown
from trax.host.extras import needed
from trax.masking import mask_url
from trax.submitters.retrying import PUT_OFF, Patience
from trax.submitters.signing import NONCE, AnswerKey, call_headers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import httpx2

SHOWN_BODY: Final = 2000
LOST_SIGHT: Final = frozenset({502, 504})
"""What gateways say that have passed a call on, or not."""
UNSIGNED: Final = "not signed by the far side (a proxy, another secret, clocks that differ)"
_random = SystemRandom()


class FarAnswer(NamedTuple):
    """An answer that was read as a whole."""

    status: int
    text: str
    is_signed: bool
    """Whether the far side gave it. Else it may have been anybody on the way."""
    description: str
    """What was answered, in words."""

    @property
    def is_success(self) -> bool:
        return self.is_signed and 200 <= self.status < 300  # noqa: PLR2004


class Unreached(TraxError):
    """Nobody there began anything: the call did not arrive, or was put off too often."""


@dataclass(kw_only=True)
class FarEndpoint:
    """Where to call, and how. Clock, chance and sleep are arguments, so that tests need not wait."""

    url: str = field(repr=False)
    key: str
    secret: bytes = field(repr=False)
    timeout: timedelta
    patience: Patience
    options: Mapping[str, Any] = field(repr=False)
    clock: Callable[[], float] = time.time
    chance: Callable[[], float] = _random.random
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep

    def __post_init__(self) -> None:
        parts = urlsplit(self.url if isinstance(self.url, str) else "")  # pyright: ignore[reportUnnecessaryIsInstance]
        if parts.scheme not in {"http", "https"} or not parts.netloc or parts.query or parts.fragment:
            raise DefinitionError(
                f"the address of HTTP workers looks like https://host/path (got {shown(self.url)})"
            )
        self._path = parts.path.rstrip("/")
        self._origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._auth = (
            (unquote(parts.username or ""), unquote(parts.password or "")) if "@" in parts.netloc else None
        )
        self.address = mask_url(self.url)
        """The URL as it may stand in a message."""
        self._httpx: Any = needed("httpx2", extra="http", by="HttpWorkers")
        self._client: httpx2.AsyncClient | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Keep connections for the calls within the block."""
        async with self._new_client() as client:
            self._client = client
            try:
                yield
            finally:
                self._client = None

    async def post(self, operation: str, body: bytes) -> FarAnswer:
        """Call, and read the whole answer. What the network does to it reaches the caller as it is."""
        async with self._leased() as client:
            response = await self._answered(client, operation, body, PUT_OFF, stream=False)
            return self._answer(response)

    @asynccontextmanager
    async def stream(self, operation: str, body: bytes) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Call, and read the lines of the answer as they come; the call ends with the block.

        What a gateway lost sight of (502, 504) is not called again: it may have begun. Raises Unreached when
        nobody has begun anything, RemoteLost when nobody knows, and else what the far side itself refuses.
        """
        async with self._leased() as client:
            try:
                response = await self._answered(client, operation, body, PUT_OFF - LOST_SIGHT, stream=True)
            except (self._httpx.ConnectError, self._httpx.ConnectTimeout, self._httpx.PoolTimeout) as error:
                raise Unreached(
                    f"{self.address} cannot be reached: {error or type(error).__name__}"
                ) from error
            except self._httpx.HTTPError as error:
                raise self._lost(error) from error
            try:
                if not response.is_success:
                    await response.aread()
                    raise self._refusal(self._answer(response))
                yield self._lines(response)
            except self._httpx.HTTPError as error:
                raise self._lost(error) from error
            finally:
                await response.aclose()

    def _answer(self, response: httpx2.Response) -> FarAnswer:
        status, key = response.status_code, self._answer_key(response)
        is_signed = key.is_answer(status, response.headers, response.content)
        text = response.text[:SHOWN_BODY] or response.reason_phrase
        by = "" if is_signed else f", {UNSIGNED}"
        return FarAnswer(status, response.text, is_signed, f"{self.address} answered {status}{by}: {text}")

    def _answer_key(self, response: httpx2.Response) -> AnswerKey:
        return AnswerKey(self.secret, response.request.headers[NONCE])

    def _refusal(self, answer: FarAnswer) -> TraxError:
        """What no run came of. A 503 need not be signed: any proxy says so when nobody is there."""
        if answer.status in PUT_OFF - LOST_SIGHT:
            return Unreached(answer.description)
        return TraxError(answer.description) if answer.is_signed else RemoteLost(answer.description)

    async def _lines(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        """What the far side said, line by line. Empty lines only keep the connection open."""
        key, number = self._answer_key(response), 0
        async for line in _split(response.aiter_bytes()):
            if not line:
                continue
            number += 1
            text = key.line_text(number, line)
            if text is None:
                raise RemoteLost(f"line {number} of the answer of {self.address} is {UNSIGNED}, or not whole")
            yield text

    async def _answered(
        self,
        client: httpx2.AsyncClient,
        operation: str,
        body: bytes,
        put_off: frozenset[int],
        *,
        stream: bool,
    ) -> httpx2.Response:
        retries = 0
        while True:
            response = await client.send(self._request(client, operation, body, stream=stream), stream=stream)
            if response.status_code not in put_off:
                return response
            after, now = response.headers.get("retry-after"), datetime.fromtimestamp(self.clock(), UTC)
            seconds = self.patience.wait(retries, after, chance=self.chance(), now=now)
            if seconds is None:
                return response
            await response.aclose()
            await self.sleep(seconds)
            retries += 1

    def _request(
        self, client: httpx2.AsyncClient, operation: str, body: bytes, *, stream: bool
    ) -> httpx2.Request:
        """Signed anew for each try: a far side that saw the last one would take it for a replay."""
        path = f"{self._path}/{operation}"
        signed_path = unquote(path)  # as servers hand it on
        headers = call_headers(self.key, self.secret, "POST", signed_path, body, now=self.clock())
        headers["content-type"] = "application/json"
        seconds = self.timeout.total_seconds()
        allowed = self._httpx.Timeout(seconds, read=None if stream else seconds)
        return client.build_request(
            "POST", self._origin + path, content=body, headers=headers, timeout=allowed
        )

    @asynccontextmanager
    async def _leased(self) -> AsyncGenerator[httpx2.AsyncClient]:
        if self._client is not None:
            yield self._client
            return
        async with self._new_client() as client:
            yield client

    def _new_client(self) -> httpx2.AsyncClient:
        limits = self._httpx.Limits(max_connections=None, max_keepalive_connections=20)
        return self._httpx.AsyncClient(**{"limits": limits, "auth": self._auth, **self.options})

    def _lost(self, error: Exception) -> RemoteLost:
        why = f"{type(error).__name__}: {error}".rstrip(": ")
        return RemoteLost(f"the connection to {self.address} broke before the run was over ({why})")


async def _split(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Lines as they were sent. Only a line feed ends one: text may hold other separators as they are."""
    rest = b""
    async for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line
    yield rest
