"""Validate arguments of public methods: ids, names, page sizes, moments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, cast

from trax.bounds import LARGEST_ID, LONGEST_NAME, MAX_SLOTS, MOMENT_TEXT, is_id, is_integer, is_moment
from trax.errors import InvalidArgument
from trax.schedule.requirement import Requirement

if TYPE_CHECKING:
    from datetime import datetime

LONGEST_PAGE: Final = 1000

AN_ID: Final = f"an id: a whole number from 0 to {LARGEST_ID}"
ID: Final = Requirement(AN_ID, is_id)
ID_OR_NONE: Final = Requirement(AN_ID, lambda value: value is None or is_id(value))
PAGE: Final = Requirement(
    f"a whole number from 1 to {LONGEST_PAGE}", lambda value: is_integer(value, 1, LONGEST_PAGE)
)
SLOTS_OR_NONE: Final = Requirement(
    f"a whole number from 1 to {MAX_SLOTS}", lambda value: value is None or is_integer(value, 1, MAX_SLOTS)
)
NAME: Final = Requirement(
    f"text of at most {LONGEST_NAME} characters",
    lambda value: isinstance(value, str) and len(value) <= LONGEST_NAME,
)
ID_OR_NAME: Final = Requirement(
    f"{AN_ID}, or text of at most {LONGEST_NAME} characters",
    lambda value: is_id(value) or NAME.is_valid(value),
)
WHOLE: Final = Requirement(
    "a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)
)
MOMENT: Final = Requirement(f"{MOMENT_TEXT}, such as datetime.now(UTC)", is_moment)


def validate_ids(ids: Iterable[int]) -> list[int]:
    """Validate ids and drop duplicates."""
    given: Any = ids
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidArgument("ids", "a list of whole numbers", given)
    return list(dict.fromkeys(ID("each of the ids", one) for one in cast("Iterable[Any]", given)))


def check_moments(**moments: datetime | None) -> None:
    """Validate datetimes given by keyword; None is allowed. The keyword is the name in the error."""
    for place, moment in moments.items():
        if moment is not None:
            MOMENT(place, moment)


def check_names(**names: Any) -> None:
    """Validate names given by keyword; None is allowed."""
    for place, name in names.items():
        if name is not None:
            NAME(place, name)
