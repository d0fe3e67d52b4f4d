"""Who may call: each call carries a signature that only a holder of the secret can make, and only once.

Signed are the method, the path, the moment, a word that is never used twice, and the hash of the body. Keys
have names, so that a new secret can be given out before the old one is withdrawn.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Any, Final, cast

from trax.errors import DefinitionError, shown

KEY: Final = "trax-key"
TIMESTAMP: Final = "trax-timestamp"
NONCE: Final = "trax-nonce"
SIGNATURE: Final = "trax-signature"
SCHEME: Final = "trax-1"
"""Stands first in what is signed: a signature made for anything else is worth nothing here."""

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


def signature(secret: bytes, method: str, path: str, timestamp: str, nonce: str, body: bytes) -> str:
    """What whoever knows the secret can make, and nobody else."""
    lines = (SCHEME, method.upper(), path, timestamp, nonce, hashlib.sha256(body).hexdigest())
    return hmac.new(secret, "\n".join(lines).encode(), hashlib.sha256).hexdigest()


def signed(key: str, secret: bytes, method: str, path: str, body: bytes, *, now: float) -> dict[str, str]:
    """The headers of a call that is made now."""
    timestamp, nonce = str(int(now)), secrets.token_hex(16)
    made = signature(secret, method, path, timestamp, nonce, body)
    return {KEY: key, TIMESTAMP: timestamp, NONCE: nonce, SIGNATURE: made}


class Doorkeeper:
    """Lets in calls that are signed, recent, and new.

    What has been let in is remembered for as long as its moment counts as recent, so many calls a key. A
    full memory lets nobody in rather than forget: only holders of the secret can fill it.
    """

    def __init__(self, keys: Mapping[str, bytes], *, remembered: int = REMEMBERED) -> None:
        self._keys = keys
        self._remembered = remembered
        self._seen: dict[str, dict[int, set[str]]] = {key: {} for key in keys}

    def check_head(self, headers: Mapping[str, str], *, now: float) -> None:
        """What can be told before the body is read: an unknown key, and a moment that is not now."""
        missing = [name for name in (KEY, TIMESTAMP, NONCE, SIGNATURE) if not headers.get(name)]
        if missing:
            raise Denied(401, f"the call is not signed: {', '.join(missing)} is missing")
        if headers[KEY] not in self._keys:
            raise Denied(401, f"there is no key {shown(headers[KEY])}")
        if len(headers[NONCE]) > LONGEST_NONCE:
            raise Denied(401, f"the nonce is longer than {LONGEST_NONCE} characters")
        age = now - _moment(headers[TIMESTAMP])
        if abs(age) > WINDOW_SECONDS:
            when = f"{age:.0f} s ago" if age > 0 else f"{-age:.0f} s ahead"
            raise Denied(
                401, f"the call was signed {when}, and {WINDOW_SECONDS} s are allowed: check the clocks"
            )

    def check(self, headers: Mapping[str, str], method: str, path: str, body: bytes, *, now: float) -> None:
        """The whole of it. A call that passes will not pass again."""
        self.check_head(headers, now=now)
        key, timestamp, nonce = headers[KEY], headers[TIMESTAMP], headers[NONCE]
        expected = signature(self._keys[key], method, path, timestamp, nonce, body)
        if not hmac.compare_digest(expected.encode(), headers[SIGNATURE].encode()):
            raise Denied(401, "the signature does not fit the call: another secret, path or body was signed")
        self._remember(key, _moment(timestamp), nonce, now)

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


def _moment(timestamp: str) -> int:
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):  # noqa: PLR2004
        raise Denied(401, f"{TIMESTAMP} is not a number of seconds (got {shown(timestamp)})")
    return int(timestamp)
