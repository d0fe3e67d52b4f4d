"""The beginning of a manager's cycle, in one trip: who leads, when it is, what is set, who waits."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trax.store.dialect import leader_lock
from trax.store.manifest_looks import waiting
from trax.store.metadata_sweeps import Trouble, looking_for_trouble
from trax.store.pipeline import run_together
from trax.store.settings import edited
from trax.store.types import in_utc

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection, Select

    from trax.settings import Settings
    from trax.store.pipeline import Step


CALM: Final = Trouble(
    timed_out=False, stale_pending=False, left_behind=False, stale_priorities=False, unstartable=False
)


class Begun(NamedTuple):
    """`leads` is true for the one server that may manage manifests in this moment; others do not wait.

    Where managing is switched off, nobody is asked who waits.
    """

    leads: bool
    now: datetime
    settings: dict[str, str]
    waiting: list[tuple[Any, ...]]
    trouble: Trouble


def begin(connection: Connection, settings: Settings, *, now: datetime | None) -> Begun:
    """The settings known so far say what to ask; those just edited say so from the next cycle on."""
    dialect = connection.dialect.name
    is_on = settings.manifest_manager_enabled
    leading = _leading_and_trouble(dialect, settings, now) if is_on else (leader_lock(dialect), {"now": now})
    asked = [(waiting(dialect), {"now": now})] if is_on else []
    [(leads, moment, *trouble)], rows, *answers = run_together(
        connection, leading, (edited(dialect), {}), *asked
    )
    waits = answers[0] if is_on else []
    return Begun(leads, in_utc(moment), dict(rows), waits, Trouble(*trouble) if is_on else CALM)


def _leading_and_trouble(dialect: str, settings: Settings, now: datetime | None) -> Step:
    """In one statement. Who finds trouble that another leader has just seen to finds nothing to do."""
    statement, given = looking_for_trouble(
        dialect,
        default=settings.default_job_timeout,
        stale_after=settings.stale_pending_timeout,
        lost_after=settings.worker_lost_after,
        unknown_after=settings.unknown_train_timeout or settings.stale_pending_timeout,
        now=now,
    )
    return _both(dialect, statement), given


@cache
def _both(dialect: str, trouble: Select[Any]) -> Select[Any]:
    return leader_lock(dialect).add_columns(*trouble.selected_columns)
