"""The record an administrative cycle leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trax.records.external_id import new_external_id
from trax.store import metadata

if TYPE_CHECKING:
    from datetime import datetime

    from trax.store import Connection
    from trax.train import Train


def leave_record(connection: Connection, train: Train[Any, Any], *, now: datetime) -> None:
    """A cycle that changed something leaves a record; an idle one does not come here and writes nothing."""
    metadata.add_completed(connection, external_id=new_external_id(), train=train.name, now=now)
