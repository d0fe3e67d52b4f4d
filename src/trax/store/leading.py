"""The beginning of a manager's cycle, in one trip: who leads, when it is, and what operators have set."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from trax.store.dialect import leader_lock
from trax.store.pipeline import run_together
from trax.store.settings import edited
from trax.store.types import in_utc

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection


class Begun(NamedTuple):
    """`leads` is true for the one server that may manage manifests in this moment; others do not wait."""

    leads: bool
    now: datetime
    settings: dict[str, str]


def begin(connection: Connection, *, now: datetime | None) -> Begun:
    dialect = connection.dialect.name
    [(leads, moment)], settings = run_together(
        connection, (leader_lock(dialect), {"now": now}), (edited(dialect), {})
    )
    return Begun(leads, in_utc(moment), dict(settings))
