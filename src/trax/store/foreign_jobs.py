"""The job store of another scheduler, as it lies in its database. It is only ever read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import Float, LargeBinary, String, column, create_engine, select, table
from sqlalchemy.exc import SQLAlchemyError

from trax.errors import StoreError
from trax.store.url import has_no_file_yet, parsed_url, shown_url


class StoredJob(NamedTuple):
    """A job of APScheduler: its id, when it runs next (None: paused), and its pickled state."""

    id: str
    next_run_at: datetime | None
    state: bytes


def apscheduler_jobs(address: str, name: str) -> list[StoredJob]:
    """Every job of its table, by id."""
    url = parsed_url(address)
    if has_no_file_yet(address):
        raise StoreError(f"there is no file {url.database!r}")
    schema, _, plain = name.rpartition(".")
    jobs = table(
        plain,
        column("id", String),
        column("next_run_time", Float),
        column("job_state", LargeBinary),
        schema=schema or None,
    )
    engine = create_engine(url, hide_parameters=True)
    try:
        with engine.connect() as connection:
            rows = connection.execute(select(jobs).order_by(jobs.c.id)).all()
    except SQLAlchemyError as refused:
        reason = str(getattr(refused, "orig", refused)).strip()
        raise StoreError(
            f"{shown_url(url)} could not be read as a job store with table {name!r}: {reason}"
        ) from None
    finally:
        engine.dispose()
    return [StoredJob(row.id, _moment(row.next_run_time), bytes(row.job_state)) for row in rows]


def _moment(seconds: Any) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
