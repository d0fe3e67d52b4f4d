"""A day of the month and a day of the week that must both match. Cron takes either, so it has to be told."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from trax.cli.importing.cron_rules import FIELDS, WEEKDAYS, numbers_if_any
from trax.errors import DefinitionError
from trax.schedule import exclude
from trax.schedule.cron import cron
from trax.schedule.days import DAYS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax.records.when import Cron

DAY, WEEKDAY = -3, -1
THE_FIRST: Final = "*/31"
SUNDAY: Final = "*/8"
"""A field that begins with a star asks for both days, and a step this long leaves only the first of it."""
SOON: Final = timedelta(seconds=30)
"""Less than a minute, or what falls on the last minute of an excluded day would be made up at midnight."""


def where_both_meet(fields: Sequence[str], tz: str) -> tuple[Cron, dict[str, Any], tuple[str, ...]]:
    """The schedule, the options it needs, and what is to be said of it."""
    day, weekday = fields[DAY], fields[WEEKDAY]
    if day.startswith("*") or weekday.startswith("*"):
        return cron(" ".join(fields), tz=tz), {}, ()
    remark = f"day {day} and {weekday} must meet there, while cron takes either"
    of_month = numbers_if_any(FIELDS[DAY], day)
    of_week = numbers_if_any(FIELDS[WEEKDAY], weekday)
    if 1 in of_month:
        return cron(_with(fields, DAY, f"{THE_FIRST},{day}"), tz=tz), {}, (f"{remark}: the star says both",)
    if {0, 7} & of_week:
        starred = f"{SUNDAY},{weekday}"
        return cron(_with(fields, WEEKDAY, starred), tz=tz), {}, (f"{remark}: the star says both",)
    if not of_week:
        raise DefinitionError(f"{remark}, and {weekday} is not a plain list of days")
    others = [name[:3] for name in DAYS if WEEKDAYS.index(name[:3]) not in of_week]
    options = {
        "exclude": exclude.days_of_week(*others),
        "on_misfire": "do_nothing",
        "misfire_threshold": SOON,
    }
    so = f"{remark}: the other days are excluded, so what was missed is not made up"
    return cron(_with(fields, WEEKDAY, "*"), tz=tz), options, (so,)


def _with(fields: Sequence[str], position: int, text: str) -> str:
    changed = list(fields)
    changed[position] = text
    return " ".join(changed)
