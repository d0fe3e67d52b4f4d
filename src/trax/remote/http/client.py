"""Call an HTTP endpoint: sign the call, retry it, and verify the response."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import unquote, urlsplit

from trax.errors import (
    DefinitionError,
    EndpointUnreachable,
    RemoteLost,
    TraxError,
    format_value,
    import_extra,
)
from trax.masking import mask_url
from trax.remote.http.signing import NONCE, ResponseKey, call_headers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import httpx2


RETRY_STATUSES: Final = frozenset({429, 502, 503, 504})
"""Statuses of a busy endpoint, or of a proxy that cannot reach it."""

JITTER: Final = 0.25


BODY_EXCERPT_CHARS: Final = 2000

MAX_BODY_BYTES: Final = 1024 * 1024
"""The longest response that is no stream: results of a batch, or a refusal."""

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""The longest line of a stream: the last one has the output of the run."""

MAX_BUFFERED_BYTES: Final = 64 * 1024 * 1024
"""All lines of one endpoint that are incomplete, and so not verified yet."""

MAX_EMPTY_LINES: Final = 100_000
"""Empty lines before the next signed one. They keep the connection open, and nobody signs them: an endpoint
sends four in a minute, and whoever sends them without end would keep a scheduler busy."""

IDENTITY: Final = "identity"

GATEWAY_ERRORS: Final = frozenset({502, 504})
"""Statuses of a gateway that may or may not have forwarded the call."""

UNSIGNED: Final = "not signed by the endpoint (sent by a proxy, other secret, or clocks differ)"

_random = SystemRandom()


class EndpointResponse(NamedTuple):
    """A response, read completely."""

    status: int
    text: str
    is_signed: bool
    """Whether the endpoint signed it. An unsigned one may come from a proxy."""
    description: str
    """The response as an error text."""

    @property
    def is_success(self) -> bool:
        return self.is_signed and 200 <= self.status < 300  # noqa: PLR2004


@dataclass(kw_only=True)
class EndpointClient:
    """Address, key and retries of an endpoint. Clock, chance and sleep are arguments for tests."""

    url: str = field(repr=False)
    key: str
    secret: bytes = field(repr=False)
    timeout: timedelta
    retry: CallRetry
    options: Mapping[str, Any] = field(repr=False)
    max_line_bytes: int = MAX_LINE_BYTES
    max_buffered_bytes: int = MAX_BUFFERED_BYTES
    clock: Callable[[], float] = time.time
    chance: Callable[[], float] = _random.random
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep

    def __post_init__(self) -> None:
        parts = urlsplit(self.url if isinstance(self.url, str) else "")  # pyright: ignore[reportUnnecessaryIsInstance]
        if parts.scheme not in {"http", "https"} or not parts.netloc or parts.query or parts.fragment:
            raise DefinitionError(f"url must be like https://host/path (got {format_value(self.url)})")
        self._path = parts.path.rstrip("/")
        self._origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._auth = (
            (unquote(parts.username or ""), unquote(parts.password or "")) if "@" in parts.netloc else None
        )
        self.address = mask_url(self.url)
        """The URL without a password, for messages."""
        self._httpx: Any = import_extra("httpx2", extra="http", feature="HttpWorkers")
        self._client: httpx2.AsyncClient | None = None
        self._buffered_bytes = 0

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Keep connections open for the calls in the block."""
        async with self._new_client() as client:
            self._client = client
            try:
                yield
            finally:
                self._client = None

    async def post(self, operation: str, body: bytes) -> EndpointResponse:
        """Call and read the whole response. Network errors are raised as they are."""
        async with self._use_client() as client:
            response = await self._send_with_retries(client, operation, body, RETRY_STATUSES, stream=False)
            try:
                return await self._read_response(response)
            finally:
                await response.aclose()

    @asynccontextmanager
    async def stream(self, operation: str, body: bytes) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Call and read the lines of the response as they arrive; the call ends with the block.

        502 and 504 of a gateway are not retried: the run may have started. Raises EndpointUnreachable if
        nothing was started, RemoteLost if that is unknown, and TraxError if the endpoint refused.
        """
        async with self._use_client() as client:
            try:
                response = await self._send_with_retries(
                    client, operation, body, RETRY_STATUSES - GATEWAY_ERRORS, stream=True
                )
            except (self._httpx.ConnectError, self._httpx.ConnectTimeout, self._httpx.PoolTimeout) as error:
                raise EndpointUnreachable(
                    f"{self.address} cannot be reached: {error or type(error).__name__}"
                ) from error
            except self._httpx.HTTPError as error:
                raise self._connection_lost(error) from error
            try:
                if not response.is_success:
                    raise self._refusal(await self._read_response(response))
                if problem := _check_encoding(response):
                    raise RemoteLost(f"the response of {self.address} {problem}")
                yield self._lines(response)
            except self._httpx.HTTPError as error:
                raise self._connection_lost(error) from error
            finally:
                await response.aclose()

    async def _read_response(self, response: httpx2.Response) -> EndpointResponse:
        """Read and verify a whole response. One that is encoded or too long is not signed by the endpoint."""
        status, body = response.status_code, b""
        problem = _check_encoding(response)
        if problem is None:
            body, problem = await self._read_body(response)
        is_signed = problem is None and self._response_key(response).is_response(
            status, response.headers, body
        )
        text = body.decode(errors="replace")
        shown = problem or text[:BODY_EXCERPT_CHARS] or response.reason_phrase[:BODY_EXCERPT_CHARS]
        by = "" if is_signed else f", {UNSIGNED}"
        return EndpointResponse(status, text, is_signed, f"{self.address} responded {status}{by}: {shown}")

    async def _read_body(self, response: httpx2.Response) -> tuple[bytes, str | None]:
        """The bytes as they were sent, or the reason why they are not read."""
        body = bytearray()
        try:
            async with asyncio.timeout(self.timeout.total_seconds()):
                async for part in _raw_parts(response):
                    if len(body) + len(part) > MAX_BODY_BYTES:
                        return b"", f"it is longer than {MAX_BODY_BYTES} bytes"
                    body += part
        except TimeoutError:
            raise self._httpx.ReadTimeout("the response did not end in time") from None
        return bytes(body), None

    def _response_key(self, response: httpx2.Response) -> ResponseKey:
        return ResponseKey(self.secret, response.request.headers[NONCE])

    def _refusal(self, response: EndpointResponse) -> TraxError:
        """The error for a failed call. A 503 need not be signed: a proxy sends it if the endpoint is down."""
        if response.status in RETRY_STATUSES - GATEWAY_ERRORS:
            return EndpointUnreachable(response.description)
        return TraxError(response.description) if response.is_signed else RemoteLost(response.description)

    async def _lines(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        """The verified lines of a response. Empty lines only keep the connection open."""
        key, number, empty = self._response_key(response), 0, 0
        async for line in self._split(_raw_parts(response)):
            if not line:
                empty += 1
                if empty > MAX_EMPTY_LINES:
                    raise RemoteLost(f"{self.address} sent {empty} empty lines, and no other")
                continue
            number, empty = number + 1, 0
            text = key.line_text(number, line)
            if text is None:
                raise RemoteLost(
                    f"line {number} of the response of {self.address} is {UNSIGNED}, or incomplete"
                )
            yield text

    async def _split(self, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Split at line feeds only: the text may contain other line separators.

        An incomplete line is not verified yet, so its length is limited, and the sum over all responses too.
        """
        rest = bytearray()
        try:
            async for part in parts:
                *ends, begun = part.split(b"\n")
                for end in ends:
                    self._append(rest, end)
                    line = bytes(rest)
                    self._clear(rest)
                    yield line
                self._append(rest, begun)
            yield bytes(rest)
        finally:
            self._clear(rest)

    def _append(self, rest: bytearray, part: bytes) -> None:
        if len(rest) + len(part) > self.max_line_bytes:
            raise RemoteLost(
                f"a line of the response of {self.address} is longer than {self.max_line_bytes} bytes "
                "(max_line_bytes of HttpWorkers)"
            )
        if self._buffered_bytes + len(part) > self.max_buffered_bytes:
            raise RemoteLost(
                f"the incomplete responses of {self.address} have more than {self.max_buffered_bytes} bytes"
            )
        rest += part
        self._buffered_bytes += len(part)

    def _clear(self, rest: bytearray) -> None:
        self._buffered_bytes -= len(rest)
        rest.clear()

    async def _send_with_retries(
        self,
        client: httpx2.AsyncClient,
        operation: str,
        body: bytes,
        retry_statuses: frozenset[int],
        *,
        stream: bool,
    ) -> httpx2.Response:
        retries = 0
        while True:
            request = self._request(client, operation, body, stream=stream)
            # The body is never read here: its encoding and length are checked first.
            response = await client.send(request, stream=True, follow_redirects=False)
            if response.status_code not in retry_statuses:
                return response
            after, now = response.headers.get("retry-after"), datetime.fromtimestamp(self.clock(), UTC)
            seconds = self.retry.wait(retries, after, chance=self.chance(), now=now)
            if seconds is None:
                return response
            await response.aclose()
            await self.sleep(seconds)
            retries += 1

    def _request(
        self, client: httpx2.AsyncClient, operation: str, body: bytes, *, stream: bool
    ) -> httpx2.Request:
        """A newly signed request for each attempt: the endpoint would reject the old nonce as a replay."""
        path = f"{self._path}/{operation}"
        signed_path = unquote(path)  # ASGI servers pass the decoded path
        headers = call_headers(self.key, self.secret, "POST", signed_path, body, now=self.clock())
        headers |= {"content-type": "application/json", "accept-encoding": IDENTITY}
        seconds = self.timeout.total_seconds()
        allowed = self._httpx.Timeout(seconds, read=None if stream else seconds)
        return client.build_request(
            "POST", self._origin + path, content=body, headers=headers, timeout=allowed
        )

    @asynccontextmanager
    async def _use_client(self) -> AsyncGenerator[httpx2.AsyncClient]:
        if self._client is not None:
            yield self._client
            return
        async with self._new_client() as client:
            yield client

    def _new_client(self) -> httpx2.AsyncClient:
        limits = self._httpx.Limits(max_connections=None, max_keepalive_connections=20)
        return self._httpx.AsyncClient(**{"limits": limits, "auth": self._auth, **self.options})

    def _connection_lost(self, error: Exception) -> RemoteLost:
        why = f"{type(error).__name__}: {error}".rstrip(": ")
        return RemoteLost(f"connection to {self.address} lost before the run ended ({why})")


def _raw_parts(response: httpx2.Response) -> AsyncIterator[bytes]:
    """The bytes of the body as they arrive: nothing is decompressed."""
    return aiter(cast("httpx2.AsyncByteStream", response.stream))


def _check_encoding(response: httpx2.Response) -> str | None:
    """Why a response is not read: what is compressed can expand without limit."""
    encoding = response.headers.get("content-encoding", IDENTITY).strip().lower()
    return (
        None if encoding in {"", IDENTITY} else f"is encoded as {format_value(encoding)}; expected {IDENTITY}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRetry:
    """How often a call is retried, and after how long: `base_delay`, doubled each time."""

    max_retries: int = 5
    base_delay: timedelta = timedelta(seconds=1)
    max_delay: timedelta = timedelta(seconds=30)

    def __post_init__(self) -> None:
        if self.max_retries < 0:
            raise DefinitionError(f"max_retries must be 0 or more (got {format_value(self.max_retries)})")
        if not timedelta() <= self.base_delay <= self.max_delay:
            raise DefinitionError(
                f"base_delay must be between 0 and max_delay (got {format_value(self.base_delay)} and "
                f"{format_value(self.max_delay)})"
            )

    @property
    def total_delay(self) -> timedelta:
        """The longest possible sum of all delays."""
        return self.max_retries * self.max_delay

    def wait(self, retries: int, retry_after: str | None, *, chance: float, now: datetime) -> float | None:
        """Seconds to wait before the next retry; None to give up.

        `chance` is a random number between 0 and 1. A `Retry-After` header applies, up to `max_delay`.
        """
        if retries >= self.max_retries:
            return None
        longest = self.max_delay.total_seconds()
        requested = _parse_retry_after(retry_after, now)
        if requested is not None:
            return min(requested, longest)
        delay = min(self.base_delay.total_seconds() * 2.0**retries, longest)
        return delay * (1 - JITTER + 2 * JITTER * chance)


def _parse_retry_after(retry_after: str | None, now: datetime) -> float | None:
    """The header's seconds, or the seconds until its date; None if it is invalid."""
    if retry_after is None:
        return None
    if retry_after.strip().isascii() and retry_after.strip().isdigit():
        return float(retry_after)
    try:
        moment = parsedate_to_datetime(retry_after)
    except (ValueError, OverflowError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())
