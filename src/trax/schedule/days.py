"""The names of the days of the week."""

from __future__ import annotations

from typing import Final

from trax.errors import DefinitionError, did_you_mean, format_value

DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def day_number(name: str) -> int:
    """`mon` or `Monday` as Python counts: Monday is 0."""
    for number, day in enumerate(DAYS):
        if name.lower() in (day, day[:3]):
            return number
    raise DefinitionError(f"{format_value(name)} is not a day of the week{did_you_mean(name.lower(), DAYS)}")
