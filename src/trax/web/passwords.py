"""Passwords of people, kept as scrypt hashes only."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

COST_LOG2: Final = 14
BLOCK: Final = 8
PARALLEL: Final = 1
SALT_BYTES: Final = 16
HASH_BYTES: Final = 32
LARGEST_COST_LOG2: Final = 18
MEMORY_BYTES: Final = 512 * 1024 * 1024
FORM: Final = re.compile(r"scrypt\.(\d{1,2})\.(\d{1,2})\.(\d)\.([\w-]{16,}=*)\.([\w-]{22,}=*)")


def hashed(password: str) -> str:
    """What to configure for this password. It has no character that a shell would take for its own."""
    salt = os.urandom(SALT_BYTES)
    digest = _digest(password, salt, COST_LOG2, BLOCK, PARALLEL)
    return f"scrypt.{COST_LOG2}.{BLOCK}.{PARALLEL}.{_spelled(salt)}.{_spelled(digest)}"


def is_hash(text: str) -> bool:
    form = FORM.fullmatch(text)
    return (
        form is not None and 1 <= int(form[1]) <= LARGEST_COST_LOG2 and int(form[2]) > 0 and int(form[3]) > 0
    )


def matches(password: str, configured: str) -> bool:
    """Whether this is the password. Takes tens of milliseconds and megabytes: call it in a thread."""
    form = FORM.fullmatch(configured)
    if form is None:
        return False
    salt, wanted = urlsafe_b64decode(form[4]), urlsafe_b64decode(form[5])
    found = _digest(password, salt, int(form[1]), int(form[2]), int(form[3]))
    return hmac.compare_digest(found, wanted)


def _digest(password: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    return hashlib.scrypt(
        password.encode(), salt=salt, n=2**cost, r=block, p=parallel, maxmem=MEMORY_BYTES, dklen=HASH_BYTES
    )


def _spelled(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode()
