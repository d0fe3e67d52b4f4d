"""Cron schedules for a day of the month and a weekday that must both match; plain cron needs only one."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from trax.cli.importing.cron_rules import FIELDS, WEEKDAYS, numbers_or_empty
from trax.errors import DefinitionError
from trax.schedule import exclude
from trax.schedule.cron import cron
from trax.schedule.days import DAYS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax.records.when import Cron

DAY_FIELD, WEEKDAY = -3, -1
THE_FIRST: Final = "*/31"
SUNDAY: Final = "*/8"
"""A day field that begins with a star makes cron require both days; this step matches only the first day."""
SHORT_THRESHOLD: Final = timedelta(seconds=30)
"""Below a minute: else a run in the last minute of an excluded day would be caught up at midnight."""


def cron_for_both_days(fields: Sequence[str], tz: str) -> tuple[Cron, dict[str, Any], tuple[str, ...]]:
    """The schedule, the options it needs, and remarks."""
    day, weekday = fields[DAY_FIELD], fields[WEEKDAY]
    if day.startswith("*") or weekday.startswith("*"):
        return cron(" ".join(fields), tz=tz), {}, ()
    remark = f"day {day} and {weekday} must both match, while cron runs on either"
    of_month = numbers_or_empty(FIELDS[DAY_FIELD], day)
    of_week = numbers_or_empty(FIELDS[WEEKDAY], weekday)
    if 1 in of_month:
        return (
            cron(_replace_field(fields, DAY_FIELD, f"{THE_FIRST},{day}"), tz=tz),
            {},
            (f"{remark}: the star requires both",),
        )
    if {0, 7} & of_week:
        starred = f"{SUNDAY},{weekday}"
        return (
            cron(_replace_field(fields, WEEKDAY, starred), tz=tz),
            {},
            (f"{remark}: the star requires both",),
        )
    if not of_week:
        raise DefinitionError(f"{remark}, and {weekday} is not a plain list of days")
    others = [name[:3] for name in DAYS if WEEKDAYS.index(name[:3]) not in of_week]
    options = {
        "exclude": exclude.days_of_week(*others),
        "on_misfire": "do_nothing",
        "misfire_threshold": SHORT_THRESHOLD,
    }
    why = f"{remark}: the other weekdays are excluded, so missed runs are not caught up"
    return cron(_replace_field(fields, WEEKDAY, "*"), tz=tz), options, (why,)


def _replace_field(fields: Sequence[str], position: int, text: str) -> str:
    changed = list(fields)
    changed[position] = text
    return " ".join(changed)
