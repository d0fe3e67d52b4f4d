"""Names that people use, as the ids that rows carry.

A list that is narrowed by a name looks the id up first: joined to the named table instead, the planner may
walk all of history for the few rows that belong to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select

from trax.store.schema import tables

if TYPE_CHECKING:
    from sqlalchemy import Connection, ScalarSelect


def manifest_id(connection: Connection, external_id: str) -> ScalarSelect[int]:
    manifest = tables(connection).manifest
    return select(manifest.c.id).where(manifest.c.external_id == external_id).scalar_subquery()


def group_id(connection: Connection, name: str) -> ScalarSelect[int]:
    group = tables(connection).manifest_group
    return select(group.c.id).where(group.c.name == name).scalar_subquery()
