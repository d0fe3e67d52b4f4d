"""Sign and verify HTTP calls and responses with a shared secret.

A call signs method, path, timestamp, nonce and the hash of its body. The hash is a header, so the headers
alone authenticate the caller, and the body of an unknown caller is not read. A response signs the nonce of
its call, the status and the body, or each line with its number. Keys have ids, so that a new secret can be
deployed before the old one is removed.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

from trax.errors import DefinitionError, format_value

KEY: Final = "trax-key"
TIMESTAMP: Final = "trax-timestamp"
NONCE: Final = "trax-nonce"
BODY_HASH: Final = "trax-content-sha256"
SIGNATURE: Final = "trax-signature"
CALL: Final = "trax-2 call"
RESPONSE: Final = "trax-2 answer"
LINE: Final = "trax-2 line"
"""The first signed word: a signature for one purpose is invalid for another."""

WINDOW_SECONDS: Final = 300
BUCKET_SECONDS: Final = 60
MAX_NONCES: Final = 500_000
SHORTEST_SECRET: Final = 16
LONGEST_NONCE: Final = 64
DEFAULT_KEY: Final = "default"


class CallDenied(Exception):
    """A rejected call: the HTTP status, and the reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def signature(secret: bytes, *words: str) -> str:
    """The HMAC-SHA256 of these words."""
    text = "\n".join(words).encode(errors="surrogatepass")  # a path may hold anything
    return hmac.new(secret, text, hashlib.sha256).hexdigest()


def call_headers(
    key: str, secret: bytes, method: str, path: str, body: bytes, *, now: float
) -> dict[str, str]:
    """The headers that sign a call."""
    timestamp, nonce, body_hash = str(int(now)), secrets.token_hex(16), hashlib.sha256(body).hexdigest()
    signed = signature(secret, CALL, method.upper(), path, timestamp, nonce, body_hash)
    return {KEY: key, TIMESTAMP: timestamp, NONCE: nonce, BODY_HASH: body_hash, SIGNATURE: signed}


class ResponseKey(NamedTuple):
    """Signs and verifies the response to one call: the nonce ties it to that call."""

    secret: bytes
    nonce: str

    def headers(self, status: int, body: bytes) -> dict[str, str]:
        return {SIGNATURE: self._response_signature(status, body)}

    def is_response(self, status: int, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether the endpoint signed this response to this call."""
        return _is_same(self._response_signature(status, body), headers.get(SIGNATURE, ""))

    def sign_line(self, number: int, text: bytes) -> bytes:
        """A line of a streamed response with its signature, as JSON."""
        return b'["%s",%s]' % (self._line_signature(number, text).encode(), text)

    def line_text(self, number: int, line: bytes) -> bytes | None:
        """The text of a signed line; None if the signature or the line number is wrong."""
        text = line[len(_LINE_HEAD) : -1]
        expected = self._line_signature(number, text).encode()
        return text if hmac.compare_digest(b'["%s",%s]' % (expected, text), line) else None

    def _response_signature(self, status: int, body: bytes) -> str:
        return signature(self.secret, RESPONSE, self.nonce, str(status), hashlib.sha256(body).hexdigest())

    def _line_signature(self, number: int, text: bytes) -> str:
        return signature(self.secret, LINE, self.nonce, str(number), hashlib.sha256(text).hexdigest())


class CallVerifier:
    """Accepts calls that are signed, recent and not replayed. It needs only their headers.

    The nonces of accepted calls are kept while their timestamp is valid, up to a limit per key. At the limit
    it rejects calls rather than forget nonces: only holders of the secret can reach it.
    """

    def __init__(self, keys: Mapping[str, bytes], *, max_nonces: int = MAX_NONCES) -> None:
        self._keys = keys
        self._max_nonces = max_nonces
        self._nonces: dict[str, dict[int, set[str]]] = {key: {} for key in keys}

    def verify(self, headers: Mapping[str, str], method: str, path: str, *, now: float) -> ResponseKey:
        """Verify a call; returns the key for its response. The same call is rejected next time."""
        _check_form(headers)
        key, timestamp, nonce = headers[KEY], headers[TIMESTAMP], headers[NONCE]
        if key not in self._keys:
            raise CallDenied(401, f"unknown key {format_value(key)}")
        _check_moment(_moment(timestamp), now)
        secret = self._keys[key]
        expected = signature(secret, CALL, method, path, timestamp, nonce, headers[BODY_HASH])
        if not _is_same(expected, headers[SIGNATURE]):
            raise CallDenied(401, "invalid signature: another secret, path or body was signed")
        self._remember(key, _moment(timestamp), nonce, now)
        return ResponseKey(secret, nonce)

    def _remember(self, key: str, moment: int, nonce: str, now: float) -> None:
        """Keep the nonce, in buckets by signed timestamp: a replay falls into the same bucket."""
        buckets = self._nonces[key]
        oldest = (now - WINDOW_SECONDS) // BUCKET_SECONDS
        for bucket in [bucket for bucket in buckets if bucket < oldest]:
            del buckets[bucket]
        nonces = buckets.setdefault(moment // BUCKET_SECONDS, set())
        if nonce in nonces:
            raise CallDenied(409, "replay: this call was accepted before")
        if sum(map(len, buckets.values())) >= self._max_nonces:
            raise CallDenied(429, "too many calls; retry in 1 min")
        nonces.add(nonce)


def check_body(headers: Mapping[str, str], body: bytes) -> None:
    """Raise if the body is not the one whose hash was signed."""
    if not _is_same(hashlib.sha256(body).hexdigest(), headers[BODY_HASH]):
        raise CallDenied(401, "invalid body: its hash differs from the signed one")


def secret_bytes(secret: Any) -> bytes:
    if not isinstance(secret, str) or len(secret) < SHORTEST_SECRET:
        raise DefinitionError(
            f"a secret must be text of at least {SHORTEST_SECRET} characters; use secrets.token_urlsafe()"
        )
    return secret.encode()


def keys_of(value: Any) -> dict[str, bytes]:
    """Secrets by key id; a single secret gets the default id."""
    if isinstance(value, str):
        return {DEFAULT_KEY: secret_bytes(value)}
    if not isinstance(value, Mapping) or not value:
        raise DefinitionError(
            "secrets must be one secret as text, or a mapping of key ids to secrets with at least one "
            f"(got {type(cast('object', value)).__name__})"
        )
    named = cast("Mapping[Any, Any]", value)
    return {validate_key(key): secret_bytes(secret) for key, secret in named.items()}


def validate_key(key: Any) -> str:
    if not isinstance(key, str) or not key.isascii() or not key.isprintable() or not key.strip():
        raise DefinitionError(f"a key id must be printable ASCII text (got {format_value(key)})")
    return key


_LINE_HEAD: Final = b'["%s",' % (b"0" * 64)


def _check_form(headers: Mapping[str, str]) -> None:
    missing = [name for name in (KEY, TIMESTAMP, NONCE, BODY_HASH, SIGNATURE) if not headers.get(name)]
    if missing:
        raise CallDenied(401, f"the call is not signed: missing {', '.join(missing)}")
    if len(headers[NONCE]) > LONGEST_NONCE:
        raise CallDenied(401, f"nonce longer than {LONGEST_NONCE} characters")


def _check_moment(moment: int, now: float) -> None:
    age = now - moment
    if abs(age) > WINDOW_SECONDS:
        when = f"{age:.0f} s ago" if age > 0 else f"{-age:.0f} s in the future"
        raise CallDenied(
            401, f"the call was signed {when}; at most {WINDOW_SECONDS} s are accepted: check the clocks"
        )


def _is_same(expected: str, actual: str) -> bool:
    return hmac.compare_digest(expected.encode(), actual.encode())


def _moment(timestamp: str) -> int:
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):  # noqa: PLR2004
        raise CallDenied(401, f"{TIMESTAMP} is not a number of seconds (got {format_value(timestamp)})")
    return int(timestamp)
