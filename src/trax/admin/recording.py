"""The record of an administrative cycle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trax.records.external_id import new_external_id
from trax.store import metadata

if TYPE_CHECKING:
    from datetime import datetime

    from trax.store import Connection
    from trax.train import Train


def record_cycle(connection: Connection, train: Train[Any, Any], *, now: datetime) -> None:
    """Insert a completed run for a cycle that changed something. Idle cycles leave no record."""
    metadata.add_completed(connection, external_id=new_external_id(), train=train.name, now=now)
