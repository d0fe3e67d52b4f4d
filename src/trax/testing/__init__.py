"""Test support for users and for Trax: the real engine with a manual clock, and a temporary PostgreSQL.

harness.py           `Harness`: run an app step by step, with a manual clock
postgres.py          `postgres()`: a temporary PostgreSQL server
_watch.py            stop and remove that server, also if the test process is killed
submitter_contract/  scenarios that every submitter must pass
"""

from __future__ import annotations

from trax.testing.harness import Harness
from trax.testing.postgres import postgres

__all__ = ["Harness", "postgres"]
