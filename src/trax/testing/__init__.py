"""What a test-suite needs: a PostgreSQL server that is there for a block and gone after it."""

from __future__ import annotations

from trax.testing.postgres import postgres

__all__ = ["postgres"]
