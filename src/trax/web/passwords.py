"""Passwords of people, kept as scrypt hashes only, and checked a few at a time."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Final

COST_LOG2: Final = 17
BLOCK: Final = 8
PARALLEL: Final = 1
SALT_BYTES: Final = 16
HASH_BYTES: Final = 32
LARGEST_WORK: Final = 2**21
"""The largest N·r·p that is accepted: 256 MB, and twice the time of today's cost."""
MEMORY_BYTES: Final = 512 * 1024 * 1024
FORM: Final = re.compile(r"scrypt\.(\d{1,2})\.(\d{1,2})\.(\d)\.([\w-]{16,}=*)\.([\w-]{22,}=*)")
WAITING_AT_MOST: Final = 16
WAITING_FROM_ONE_ADDRESS: Final = 4


def hashed(password: str, *, cost_log2: int = COST_LOG2) -> str:
    """What to configure for this password. It has no character that a shell would take for its own."""
    salt = os.urandom(SALT_BYTES)
    digest = _digest(password, salt, cost_log2, BLOCK, PARALLEL)
    return f"scrypt.{cost_log2}.{BLOCK}.{PARALLEL}.{_encode(salt)}.{_encode(digest)}"


def is_hash(text: str) -> bool:
    form = FORM.fullmatch(text)
    if form is None or int(form[1]) < 1:
        return False
    return 0 < 2 ** int(form[1]) * int(form[2]) * int(form[3]) <= LARGEST_WORK


def is_outdated(configured: str) -> bool:
    """Whether a hash was made at a lower cost than today's."""
    form = FORM.fullmatch(configured)
    return form is not None and int(form[1]) < COST_LOG2


def matches(password: str, configured: str) -> bool:
    """Whether this is the password. Takes most of a second and 128 MB: see `PasswordChecks`."""
    form = FORM.fullmatch(configured)
    if form is None:
        return False
    salt, wanted = urlsafe_b64decode(form[4]), urlsafe_b64decode(form[5])
    found = _digest(password, salt, int(form[1]), int(form[2]), int(form[3]))
    return hmac.compare_digest(found, wanted)


class TooManyChecks(Exception):
    """More passwords wait to be checked than may."""


class PasswordChecks:
    """Checks one password at a time in a thread, so that guesses take neither the memory nor the loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trax-passwords")
        self._waiting: Counter[str] = Counter()

    async def is_right(self, password: str, configured: str, *, address: str) -> bool:
        """Raises TooManyChecks at once where too many wait, in all or from one address."""
        is_full = self._waiting.total() >= WAITING_AT_MOST
        if is_full or self._waiting[address] >= WAITING_FROM_ONE_ADDRESS:
            raise TooManyChecks
        self._waiting[address] += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, matches, password, configured)
        finally:
            self._waiting[address] -= 1
            if not self._waiting[address]:
                del self._waiting[address]


CHECKS: Final = PasswordChecks()
"""One for the process, however many dashboards it serves: memory belongs to the process."""


def _digest(password: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    return hashlib.scrypt(
        password.encode(), salt=salt, n=2**cost, r=block, p=parallel, maxmem=MEMORY_BYTES, dklen=HASH_BYTES
    )


def _encode(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode()
