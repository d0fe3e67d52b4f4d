"""Who may call, and whose answer counts: both carry a signature that only a holder of the secret can make.

Of a call are signed the method, the path, the moment, a nonce, and the hash of the body. The hash is sent
along: so the head alone proves who calls, and the body of anybody else is not read. Of an answer are signed
the nonce of its call, the status and the body, or each line with its number. Keys have names, so that a new
secret can be given out before the old one is withdrawn.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

from trax.errors import DefinitionError, shown

KEY: Final = "trax-key"
TIMESTAMP: Final = "trax-timestamp"
NONCE: Final = "trax-nonce"
BODY_HASH: Final = "trax-content-sha256"
SIGNATURE: Final = "trax-signature"
CALL: Final = "trax-2 call"
ANSWER: Final = "trax-2 answer"
LINE: Final = "trax-2 line"
"""Each stands first in what is signed: a signature made for anything else is worth nothing there."""

WINDOW_SECONDS: Final = 300
BUCKET_SECONDS: Final = 60
REMEMBERED: Final = 500_000
SHORTEST_SECRET: Final = 16
LONGEST_NONCE: Final = 64
DEFAULT_KEY: Final = "default"


class Denied(Exception):
    """A call that is not answered: the status to say so with, and why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def signature(secret: bytes, *words: str) -> str:
    """What whoever knows the secret can make of these words, and nobody else."""
    return hmac.new(secret, "\n".join(words).encode(), hashlib.sha256).hexdigest()


def call_headers(
    key: str, secret: bytes, method: str, path: str, body: bytes, *, now: float
) -> dict[str, str]:
    """The headers of a call that is made now."""
    timestamp, nonce, body_hash = str(int(now)), secrets.token_hex(16), hashlib.sha256(body).hexdigest()
    made = signature(secret, CALL, method.upper(), path, timestamp, nonce, body_hash)
    return {KEY: key, TIMESTAMP: timestamp, NONCE: nonce, BODY_HASH: body_hash, SIGNATURE: made}


class AnswerKey(NamedTuple):
    """What the answer to one call is signed with: no other call has its nonce, so no other answer fits."""

    secret: bytes
    nonce: str

    def headers(self, status: int, body: bytes) -> dict[str, str]:
        return {SIGNATURE: self._of_answer(status, body)}

    def is_answer(self, status: int, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether the far side has given this answer, to this call."""
        return _is_same(self._of_answer(status, body), headers.get(SIGNATURE, ""))

    def signed_line(self, number: int, text: bytes) -> bytes:
        """One line of an answer that is told line by line: its signature and itself, as JSON."""
        return b'["%s",%s]' % (self._of_line(number, text).encode(), text)

    def line_text(self, number: int, line: bytes) -> bytes | None:
        """What a line says; None when the far side did not say it, or not at this place."""
        text = line[len(_LINE_HEAD) : -1]
        made = self._of_line(number, text).encode()
        return text if hmac.compare_digest(b'["%s",%s]' % (made, text), line) else None

    def _of_answer(self, status: int, body: bytes) -> str:
        return signature(self.secret, ANSWER, self.nonce, str(status), hashlib.sha256(body).hexdigest())

    def _of_line(self, number: int, text: bytes) -> str:
        return signature(self.secret, LINE, self.nonce, str(number), hashlib.sha256(text).hexdigest())


class Doorkeeper:
    """Lets in calls that are signed, recent, and new. It needs only their head.

    What has been let in is remembered for as long as its moment counts as recent, so many calls a key. A
    full memory lets nobody in rather than forget: only holders of the secret can fill it.
    """

    def __init__(self, keys: Mapping[str, bytes], *, remembered: int = REMEMBERED) -> None:
        self._keys = keys
        self._remembered = remembered
        self._seen: dict[str, dict[int, set[str]]] = {key: {} for key in keys}

    def check(self, headers: Mapping[str, str], method: str, path: str, *, now: float) -> AnswerKey:
        """What to sign the answer with. A call that passes will not pass again."""
        _check_form(headers)
        key, timestamp, nonce = headers[KEY], headers[TIMESTAMP], headers[NONCE]
        if key not in self._keys:
            raise Denied(401, f"there is no key {shown(key)}")
        _check_moment(_moment(timestamp), now)
        secret = self._keys[key]
        expected = signature(secret, CALL, method, path, timestamp, nonce, headers[BODY_HASH])
        if not _is_same(expected, headers[SIGNATURE]):
            raise Denied(401, "the signature does not fit the call: another secret, path or body was signed")
        self._remember(key, _moment(timestamp), nonce, now)
        return AnswerKey(secret, nonce)

    def _remember(self, key: str, moment: int, nonce: str, now: float) -> None:
        """In buckets by the moment that was signed: a call that is repeated comes to the same one."""
        buckets = self._seen[key]
        oldest = (now - WINDOW_SECONDS) // BUCKET_SECONDS
        for bucket in [bucket for bucket in buckets if bucket < oldest]:
            del buckets[bucket]
        seen = buckets.setdefault(moment // BUCKET_SECONDS, set())
        if nonce in seen:
            raise Denied(409, "the call was answered before: it is a replay")
        if sum(map(len, buckets.values())) >= self._remembered:
            raise Denied(429, "more calls than can be remembered; come again in a minute")
        seen.add(nonce)


def check_body(headers: Mapping[str, str], body: bytes) -> None:
    """Whether it is the body whose hash was signed."""
    if not _is_same(hashlib.sha256(body).hexdigest(), headers[BODY_HASH]):
        raise Denied(401, "the body is not the one that was signed")


def secret_bytes(secret: Any) -> bytes:
    if not isinstance(secret, str) or len(secret) < SHORTEST_SECRET:
        raise DefinitionError(
            f"a secret is text of at least {SHORTEST_SECRET} characters; secrets.token_urlsafe() makes one"
        )
    return secret.encode()


def keys_of(given: Any) -> dict[str, bytes]:
    """One secret, or several by the names of their keys."""
    if isinstance(given, str):
        return {DEFAULT_KEY: secret_bytes(given)}
    if not isinstance(given, Mapping) or not given:
        raise DefinitionError("secrets are one text, or a mapping of key ids to texts, at least one")
    named = cast("Mapping[Any, Any]", given)
    return {checked_key(key): secret_bytes(secret) for key, secret in named.items()}


def checked_key(key: Any) -> str:
    if not isinstance(key, str) or not key.isascii() or not key.isprintable() or not key.strip():
        raise DefinitionError(f"the id of a key is plain text (got {shown(key)})")
    return key


_LINE_HEAD: Final = b'["%s",' % (b"0" * 64)


def _check_form(headers: Mapping[str, str]) -> None:
    missing = [name for name in (KEY, TIMESTAMP, NONCE, BODY_HASH, SIGNATURE) if not headers.get(name)]
    if missing:
        raise Denied(401, f"the call is not signed: {', '.join(missing)} is missing")
    if len(headers[NONCE]) > LONGEST_NONCE:
        raise Denied(401, f"the nonce is longer than {LONGEST_NONCE} characters")


def _check_moment(moment: int, now: float) -> None:
    age = now - moment
    if abs(age) > WINDOW_SECONDS:
        when = f"{age:.0f} s ago" if age > 0 else f"{-age:.0f} s ahead"
        raise Denied(401, f"the call was signed {when}, and {WINDOW_SECONDS} s are allowed: check the clocks")


def _is_same(expected: str, given: str) -> bool:
    return hmac.compare_digest(expected.encode(), given.encode())


def _moment(timestamp: str) -> int:
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):  # noqa: PLR2004
        raise Denied(401, f"{TIMESTAMP} is not a number of seconds (got {shown(timestamp)})")
    return int(timestamp)
