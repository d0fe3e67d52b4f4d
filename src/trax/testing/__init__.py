"""Test support for users and for Trax: the real engine with a manual clock, and a temporary PostgreSQL."""

from __future__ import annotations

from trax.testing.harness import Harness
from trax.testing.postgres import postgres

__all__ = ["Harness", "postgres"]
