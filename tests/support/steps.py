"""Steps for tests of how statements are sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam

from trax.store.schema import tables
from trax.store.types import Utc

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from trax.store.pipeline import BoundStatement


def adding(connection: Connection, name: str, now: datetime) -> BoundStatement:
    """Writes a setting of that name, and gives the name back."""
    setting = tables(connection).setting
    values: dict[str, Any] = {
        "name": bindparam("word"),
        "value": "1",
        "updated_at": bindparam("now", type_=Utc),
    }
    return setting.insert().values(values).returning(setting.c.name), {"word": name, "now": now}
