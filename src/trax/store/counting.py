"""Bounded counts: exact up to COUNTED_TO, estimated beyond."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import func, select, text

from trax.records.count import COUNT_LIMIT, Count
from trax.store.dialect import among, id_document, is_sqlite
from trax.store.schema import tables
from trax.store.schema.define import SCHEMA
from trax.store.schema.manifest import LIVE
from trax.store.schema.work_queue import DELAYED, PARKED, READY

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection, Select, Table

PROBES: Final = 1_000
GOLDEN_RATIO: Final = 0.618_033_988_75


def count_up_to(connection: Connection, rows: Select[Any], estimate: Callable[[], int]) -> Count:
    """Count the rows up to COUNTED_TO; above that, return an estimate."""
    bounded = rows.limit(COUNT_LIMIT + 1).subquery()
    number = connection.execute(select(func.count()).select_from(bounded)).scalar_one()
    return Count(number) if number <= COUNT_LIMIT else Count(max(number, estimate()), exact=False)


def count_queued(connection: Connection) -> Count:
    """Count queued entries: ready, delayed and parked."""
    queue = tables(connection).work_queue
    parts = [
        count_up_to(
            connection,
            select(queue.c.id).where(text(condition)),
            lambda index=index, condition=condition: estimate_index_rows(connection, queue, index, condition),
        )
        for condition, index in (
            (READY, "work_queue_ready_idx"),
            (DELAYED, "work_queue_delayed_idx"),
            (PARKED, "work_queue_parked_at_idx"),
        )
    ]
    return Count(sum(part.number for part in parts), exact=all(part.exact for part in parts))


def count_running(connection: Connection) -> Count:
    """Count runs in progress; administrative runs are never in that state."""
    return count_in_state(connection, "in_progress", "metadata_running_idx")


def count_pending(connection: Connection) -> Count:
    return count_in_state(connection, "pending", "metadata_claim_idx")


def count_in_state(connection: Connection, state: str, index: str) -> Count:
    run, condition = tables(connection).metadata, f"state = '{state}'"
    return count_up_to(
        connection,
        select(run.c.id).where(text(condition)),
        lambda: estimate_index_rows(connection, run, index, condition),
    )


def count_dead_letters(connection: Connection) -> Count:
    """Count dead letters that await intervention."""
    letter, condition = tables(connection).dead_letter, "status = 'awaiting_intervention'"
    return count_up_to(
        connection,
        select(letter.c.id).where(text(condition)),
        lambda: estimate_index_rows(connection, letter, "dead_letter_awaiting_idx", condition),
    )


def count_active_manifests(connection: Connection) -> Count:
    """Count enabled manifests. There is no index on that: above the bound, extrapolate from the first."""
    manifest = tables(connection).manifest
    in_use = select(manifest.c.enabled).where(text(LIVE)).order_by(manifest.c.external_id)
    bounded = in_use.limit(COUNT_LIMIT + 1).subquery()
    enabled = func.count().filter(bounded.c.enabled.is_(True))
    number, read = connection.execute(select(enabled, func.count()).select_from(bounded)).one()
    if read <= COUNT_LIMIT:
        return Count(number)
    total = estimate_index_rows(connection, manifest, "manifest_live_idx", LIVE)
    return Count(round(total * number / read), exact=False)


def estimate_rows(connection: Connection, table: Table) -> int:
    """Estimate the rows of a table; on SQLite by the highest id."""
    if is_sqlite(connection):
        return connection.execute(select(func.coalesce(func.max(table.c.id), 0))).scalar_one()
    return _read_planner_estimate(connection, table.name)


def estimate_index_rows(connection: Connection, table: Table, index: str, condition: str) -> int:
    """Estimate the rows of a partial index; SQLite keeps no estimate, so sample the table."""
    return (
        _estimate_by_sample(connection, table, condition)
        if is_sqlite(connection)
        else _read_planner_estimate(connection, index)
    )


def _estimate_by_sample(connection: Connection, table: Table, condition: str) -> int:
    """Estimate from evenly spread ids (golden ratio: no periodic bias); a missing id does not match."""
    first, last = (connection.execute(select(end(table.c.id))).scalar() or 0 for end in (func.min, func.max))
    size = last + 1 - first
    probes = {first + int(size * (number * GOLDEN_RATIO % 1)) for number in range(PROBES)}
    query = select(func.count()).select_from(table).where(among(connection, table.c.id), text(condition))
    matches = connection.execute(query, {"ids": id_document(probes)}).scalar_one()
    return matches * size // len(probes)


def _read_planner_estimate(connection: Connection, name: str) -> int:
    """The row estimate of the last ANALYZE or VACUUM; PostgreSQL has -1 where there was none."""
    query = text("SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass(:name)")
    return max(0, connection.execute(query, {"name": f"{SCHEMA}.{name}"}).scalar() or 0)
