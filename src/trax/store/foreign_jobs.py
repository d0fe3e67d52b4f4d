"""Read the job store of another scheduler (APScheduler) from its database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import Float, LargeBinary, String, column, create_engine, select, table
from sqlalchemy.exc import SQLAlchemyError

from trax.errors import StoreError
from trax.store.url import display_url, has_no_file_yet, parse_url


class StoredJob(NamedTuple):
    """A job of APScheduler: its id, its next run (None if paused), and its pickled state."""

    id: str
    next_run_at: datetime | None
    state: bytes


def apscheduler_jobs(address: str, name: str) -> list[StoredJob]:
    """All jobs of the table, by id."""
    url = parse_url(address)
    if has_no_file_yet(address):
        raise StoreError(f"file {url.database!r} does not exist")
    schema, _, table_name = name.rpartition(".")
    jobs = table(
        table_name,
        column("id", String),
        column("next_run_time", Float),
        column("job_state", LargeBinary),
        schema=schema or None,
    )
    engine = create_engine(url, hide_parameters=True)
    try:
        with engine.connect() as connection:
            rows = connection.execute(select(jobs).order_by(jobs.c.id)).all()
    except (SQLAlchemyError, UnicodeError) as error:  # UnicodeError: a lone surrogate in the name
        reason = str(getattr(error, "orig", error)).strip()
        raise StoreError(
            f"{display_url(url)} cannot be read as a job store with table {name!r}: {reason}"
        ) from None
    finally:
        engine.dispose()
    return [StoredJob(row.id, _moment(row.next_run_time), bytes(row.job_state)) for row in rows]


def _moment(seconds: Any) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
