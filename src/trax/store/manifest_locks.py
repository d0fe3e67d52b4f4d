"""Locks on manifests' rows: always in the order of their ids, so that two batches cannot block each other."""

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

    from trax.store.pipeline import Step


def lock(connection: Connection, ids: Iterable[int]) -> None:
    """Wait until nobody else changes these manifests, and keep them until the transaction ends.

    A statement of its own: whoever waited here must read runs and entries with a snapshot taken after the
    wait, or it sees the manifest as it is and its runs as they were. In SQLite the transaction is the lock.
    """
    run_together(connection, *locking(connection, ids))


def locking(connection: Connection, ids: Iterable[int]) -> list[Step]:
    """The same as steps, for those that have more to do in the same trip."""
    dialect = connection.dialect.name
    return [] if dialect == SQLITE else [(_lock(dialect), {"ids": id_document(ids)})]


def lock_those(connection: Connection, condition: ColumnElement[bool]) -> list[int]:
    """Lock the manifests of which this holds, in the same order; returns their ids."""
    manifest = tables(connection).manifest
    query = select(manifest.c.id).where(condition).order_by(manifest.c.id).with_for_update(of=manifest)
    return list(connection.execute(query).scalars())


@cache
def _lock(dialect: str) -> Select[Any]:
    manifest = tables_for(dialect).manifest
    given = ids_of(dialect)
    return (
        select(manifest.c.id)
        .join(given, given.c.id == manifest.c.id)
        .order_by(manifest.c.id)
        .with_for_update(of=manifest)
    )
