"""Password hashes (scrypt), and their verification one at a time."""

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
"""The largest accepted N·r·p: 256 MB, twice the current default cost."""
MEMORY_BYTES: Final = 512 * 1024 * 1024
HASH_FORMAT: Final = re.compile(r"scrypt\.(\d{1,2})\.(\d{1,2})\.(\d)\.([\w-]{16,}=*)\.([\w-]{22,}=*)")
WAITING_AT_MOST: Final = 16
WAITING_FROM_ONE_ADDRESS: Final = 4


def hash_password(password: str, *, cost_log2: int = COST_LOG2) -> str:
    """Hash a password for the configuration. The result has no characters that a shell would interpret."""
    salt = os.urandom(SALT_BYTES)
    digest = _digest(password, salt, cost_log2, BLOCK, PARALLEL)
    return f"scrypt.{cost_log2}.{BLOCK}.{PARALLEL}.{_encode(salt)}.{_encode(digest)}"


def is_hash(text: str) -> bool:
    form = HASH_FORMAT.fullmatch(text)
    if form is None or int(form[1]) < 1:
        return False
    return 0 < 2 ** int(form[1]) * int(form[2]) * int(form[3]) <= LARGEST_WORK


def is_outdated(configured: str) -> bool:
    """Whether a hash has a lower cost than the current default."""
    form = HASH_FORMAT.fullmatch(configured)
    return form is not None and int(form[1]) < COST_LOG2


def matches(password: str, configured: str) -> bool:
    """Verify a password. Takes most of a second and 128 MB: see `PasswordChecks`."""
    form = HASH_FORMAT.fullmatch(configured)
    if form is None:
        return False
    salt, expected = urlsafe_b64decode(form[4]), urlsafe_b64decode(form[5])
    actual = _digest(password, salt, int(form[1]), int(form[2]), int(form[3]))
    return hmac.compare_digest(actual, expected)


class TooManyChecks(Exception):
    """Too many passwords are waiting to be verified."""


class PasswordChecks:
    """Verifies one password at a time in a thread, which bounds memory and keeps the event loop free."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trax-passwords")
        self._waiting: Counter[str] = Counter()

    async def is_right(self, password: str, configured: str, *, address: str) -> bool:
        """Verify a password; raises TooManyChecks if too many wait, in total or from one address."""
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
"""One per process, because the memory limit is per process."""


def _digest(password: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    return hashlib.scrypt(
        password.encode(), salt=salt, n=2**cost, r=block, p=parallel, maxmem=MEMORY_BYTES, dklen=HASH_BYTES
    )


def _encode(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode()
