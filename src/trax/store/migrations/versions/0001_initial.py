"""Create all tables."""

from __future__ import annotations

from trax.store.migrations import run_sql_file

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql_file(__file__)
