"""Lock manifest rows, always in the order of their ids, so that two batches cannot deadlock."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from trax.store.dialect import id_document, ids_of
from trax.store.pipeline import run_together
from trax.store.schema import tables, tables_for
from trax.store.types import SQLITE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import ColumnElement, Connection, Select

    from trax.store.pipeline import BoundStatement


def lock(connection: Connection, ids: Iterable[int]) -> None:
    """Lock these manifests until the transaction ends.

    A separate statement: runs and entries must be read with a snapshot taken after the wait, or they are
    older than the manifest. On SQLite the transaction is the lock.
    """
    run_together(connection, *lock_statements(connection, ids))


def lock_statements(connection: Connection, ids: Iterable[int]) -> list[BoundStatement]:
    """The lock statements, for callers that send more in the same round trip."""
    dialect = connection.dialect.name
    return [] if dialect == SQLITE else [(_lock(dialect), {"ids": id_document(ids)})]


def lock_where(connection: Connection, condition: ColumnElement[bool]) -> list[int]:
    """Lock the manifests that match a condition, in the order of their ids; returns the ids."""
    manifest = tables(connection).manifest
    query = select(manifest.c.id).where(condition).order_by(manifest.c.id).with_for_update(of=manifest)
    return list(connection.execute(query).scalars())


@cache
def _lock(dialect: str) -> Select[Any]:
    manifest = tables_for(dialect).manifest
    wanted = ids_of(dialect)
    return (
        select(manifest.c.id)
        .join(wanted, wanted.c.id == manifest.c.id)
        .order_by(manifest.c.id)
        .with_for_update(of=manifest)
    )
