from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from trax.store.foreign_jobs import StoredJob, apscheduler_jobs
from trax.store.url import parse_url

if TYPE_CHECKING:
    from pathlib import Path

MOMENT = datetime(2027, 3, 20, 12, 0, 17, 500000, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A job store with two jobs, one of them paused, in the tables that APScheduler makes."""
    is_file = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/jobs.db" if is_file else request.getfixturevalue("postgres_url")
    jobs = sa.Table(
        "their_jobs",
        sa.MetaData(),
        sa.Column("id", sa.Unicode(191), primary_key=True),
        sa.Column("next_run_time", sa.Float(25), index=True),
        sa.Column("job_state", sa.LargeBinary, nullable=False),
    )
    engine = sa.create_engine(parse_url(url))
    with engine.begin() as connection:
        jobs.create(connection)
        rows = [
            {"id": "paused", "next_run_time": None, "job_state": b"\x80\x05."},
            {"id": "active", "next_run_time": MOMENT.timestamp(), "job_state": b"\x00"},
        ]
        connection.execute(sa.insert(jobs), rows)
    engine.dispose()
    return url


def test_the_jobs_of_another_scheduler_are_read_as_they_lie(store_url: str) -> None:
    assert apscheduler_jobs(store_url, "their_jobs") == [
        StoredJob("active", MOMENT, b"\x00"),
        StoredJob("paused", None, b"\x80\x05."),
    ]
