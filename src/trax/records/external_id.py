"""Names for entries and runs that anyone can make without asking the database."""

from __future__ import annotations

import os
import time
from collections import deque

CHANCE_BYTES = 10
AT_ONCE = 256

_chances: deque[str] = deque()
os.register_at_fork(after_in_child=_chances.clear)


def new_external_id() -> str:
    """32 hex characters: the moment first, so that neighbours in time are neighbours in the index."""
    return f"{time.time_ns() // 1_000_000:012x}{_chance()}"


def _chance() -> str:
    """Chance is asked for in bulk: one by one it would be the dearest part of writing an entry."""
    while True:
        try:
            return _chances.popleft()
        except IndexError:
            text = os.urandom(CHANCE_BYTES * AT_ONCE).hex()
            _chances.extend(text[at : at + 2 * CHANCE_BYTES] for at in range(0, len(text), 2 * CHANCE_BYTES))
