"""Names for entries and runs that anyone can make without asking the database."""

from __future__ import annotations

import secrets
import time


def new_external_id() -> str:
    """32 hex characters: the moment first, so that neighbours in time are neighbours in the index."""
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"
