"""Generate external ids of entries and runs, without the database."""

from __future__ import annotations

import os
import time
from collections import deque

RANDOM_BYTES = 10
POOL_SIZE = 256

_random_pool: deque[str] = deque()
os.register_at_fork(after_in_child=_random_pool.clear)


def new_external_id() -> str:
    """32 hex characters: the time first, so that ids of the same time are close in the index, then random."""
    return f"{time.time_ns() // 1_000_000:012x}{_random_hex()}"


def _random_hex() -> str:
    """20 random hex characters, from a pool: a `urandom` call per id would dominate the cost of an entry."""
    while True:
        try:
            return _random_pool.popleft()
        except IndexError:
            text = os.urandom(RANDOM_BYTES * POOL_SIZE).hex()
            _random_pool.extend(
                text[at : at + 2 * RANDOM_BYTES] for at in range(0, len(text), 2 * RANDOM_BYTES)
            )
