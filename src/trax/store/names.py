"""Subqueries that look up the id of a manifest or group by its name.

Lists are filtered by id, not by a join on the name: with the join, the planner may scan the whole history
for a few rows.
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
