"""Counting that stops: exact up to a bound, and beyond it about how many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import func, select, text

from trax.records.count import COUNTED_TO, Count
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


def count_up_to(connection: Connection, rows: Select[Any], estimated: Callable[[], int]) -> Count:
    """How many rows there are: counted as far as COUNTED_TO, and from there on estimated."""
    some = rows.limit(COUNTED_TO + 1).subquery()
    number = connection.execute(select(func.count()).select_from(some)).scalar_one()
    return Count(number) if number <= COUNTED_TO else Count(max(number, estimated()), exact=False)


def queued(connection: Connection) -> Count:
    """What waits in the queue: ready, delayed, or for a worker that takes it."""
    queue = tables(connection).work_queue
    parts = [
        count_up_to(
            connection,
            select(queue.c.id).where(text(condition)),
            lambda index=index, condition=condition: in_index(connection, queue, index, condition),
        )
        for condition, index in (
            (READY, "work_queue_ready_idx"),
            (DELAYED, "work_queue_delayed_idx"),
            (PARKED, "work_queue_parked_at_idx"),
        )
    ]
    return Count(sum(part.number for part in parts), exact=all(part.exact for part in parts))


def running(connection: Connection) -> Count:
    """Runs in progress; the administrative ones never are."""
    return in_state(connection, "in_progress", "metadata_running_idx")


def pending(connection: Connection) -> Count:
    return in_state(connection, "pending", "metadata_claim_idx")


def in_state(connection: Connection, state: str, index: str) -> Count:
    run, condition = tables(connection).metadata, f"state = '{state}'"
    return count_up_to(
        connection,
        select(run.c.id).where(text(condition)),
        lambda: in_index(connection, run, index, condition),
    )


def dead_letters(connection: Connection) -> Count:
    """What waits for a person."""
    letter, condition = tables(connection).dead_letter, "status = 'awaiting_intervention'"
    return count_up_to(
        connection,
        select(letter.c.id).where(text(condition)),
        lambda: in_index(connection, letter, "dead_letter_awaiting_idx", condition),
    )


def active_manifests(connection: Connection) -> Count:
    """Manifests that are enabled. Nothing is indexed by that: of many, the share among the first counts."""
    manifest = tables(connection).manifest
    in_use = select(manifest.c.enabled).where(text(LIVE)).order_by(manifest.c.external_id)
    some = in_use.limit(COUNTED_TO + 1).subquery()
    enabled = func.count().filter(some.c.enabled.is_(True))
    number, looked_at = connection.execute(select(enabled, func.count()).select_from(some)).one()
    if looked_at <= COUNTED_TO:
        return Count(number)
    total = in_index(connection, manifest, "manifest_live_idx", LIVE)
    return Count(round(total * number / looked_at), exact=False)


def about(connection: Connection, table: Table) -> int:
    """About how many rows a table has. In SQLite ids count up from one, so the last one says so."""
    if is_sqlite(connection):
        return connection.execute(select(func.coalesce(func.max(table.c.id), 0))).scalar_one()
    return _planners(connection, table.name)


def in_index(connection: Connection, table: Table, index: str, condition: str) -> int:
    """About how many rows a partial index has; SQLite keeps no estimate, so some rows stand for all."""
    return _sampled(connection, table, condition) if is_sqlite(connection) else _planners(connection, index)


def _sampled(connection: Connection, table: Table, condition: str) -> int:
    """By looking at some ids, spread evenly without a rhythm; where no row is left, it does not hold."""
    first, last = (connection.execute(select(end(table.c.id))).scalar() or 0 for end in (func.min, func.max))
    size = last + 1 - first
    probes = {first + int(size * (number * GOLDEN_RATIO % 1)) for number in range(PROBES)}
    query = select(func.count()).select_from(table).where(among(connection, table.c.id), text(condition))
    held = connection.execute(query, {"ids": id_document(probes)}).scalar_one()
    return held * size // len(probes)


def _planners(connection: Connection, name: str) -> int:
    """What PostgreSQL remembers of the last time it looked; less than nothing where it never did."""
    query = text("SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass(:name)")
    return max(0, connection.execute(query, {"name": f"{SCHEMA}.{name}"}).scalar() or 0)
