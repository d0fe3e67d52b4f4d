"""For your tests and ours: the real engine under a clock you own, and a PostgreSQL to throw away."""

from __future__ import annotations

from trax.testing.harness import Harness
from trax.testing.postgres import postgres

__all__ = ["Harness", "postgres"]
