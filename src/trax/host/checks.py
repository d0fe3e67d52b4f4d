"""What callers ask for, checked where it enters."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, cast

from trax.errors import DefinitionError, shown
from trax.schedule.requirement import Requirement

LONGEST_PAGE: Final = 1000
LARGEST_ID: Final = 2**63 - 1


def is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_ID


ID: Final = Requirement("an id: a whole number", is_id)
ID_OR_NONE: Final = Requirement("an id: a whole number", lambda value: value is None or is_id(value))
PAGE: Final = Requirement(
    f"a whole number from 1 to {LONGEST_PAGE}", lambda value: is_id(value) and 1 <= value <= LONGEST_PAGE
)
WHOLE: Final = Requirement(
    "a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)
)
MOMENT: Final = Requirement(
    "a datetime with a time zone, such as datetime.now(UTC)",
    lambda value: isinstance(value, datetime) and value.tzinfo is not None,
)


def checked_ids(ids: Iterable[int]) -> list[int]:
    """Any number of ids, each once."""
    given: Any = ids
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise DefinitionError(f"ids must be a list of whole numbers (got {shown(given)})")
    return [ID("each of the ids", one) for one in dict.fromkeys(cast("Iterable[Any]", given))]


def checked_moments(**moments: datetime | None) -> None:
    """Moments that may be left out, by the names they have in the call."""
    for name, moment in moments.items():
        if moment is not None:
            MOMENT(name, moment)
