"""Validate option values: the expectation for the error message, and its check."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

from trax.bounds import (
    LARGEST_COUNT,
    LARGEST_ID,
    LONGEST_NAME,
    LONGEST_PAGE,
    MAX_SLOTS,
    MOMENT_TEXT,
    PRIORITY_MAX,
    is_duration,
    is_id,
    is_integer,
    is_moment,
)
from trax.errors import InvalidArgument
from trax.train import Retry


@dataclass(frozen=True, slots=True)
class Requirement:
    """Returns a valid value unchanged; raises InvalidArgument with the expectation for an invalid one."""

    expected: str
    is_valid: Callable[[Any], bool]

    def __call__(self, place: str, value: Any) -> Any:
        if not self.is_valid(value):
            raise InvalidArgument(place, self.expected, value)
        return value


def _is_label(value: Any) -> bool:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME:
        return False
    return value == value.strip() and value.isprintable()


FLAG: Final = Requirement("True or False", lambda value: isinstance(value, bool))
COUNT: Final = Requirement(f"a whole number from 0 to {LARGEST_COUNT}", is_integer)
AT_LEAST_ONE: Final = Requirement(
    f"a whole number from 1 to {LARGEST_COUNT}", lambda value: is_integer(value, 1)
)
LIMIT: Final = Requirement(
    f"a whole number from 0 to {LARGEST_COUNT}, or None for no limit",
    lambda value: value is None or is_integer(value),
)
PRIORITY: Final = Requirement(
    f"a whole number from 0 to {PRIORITY_MAX}", lambda value: is_integer(value, 0, PRIORITY_MAX)
)
DURATION: Final = Requirement("a timedelta from 0 to 68 years", is_duration)
TIME_LIMIT: Final = Requirement(
    "a timedelta above 0, up to 68 years", lambda value: is_duration(value) and bool(value)
)
WHOLE_SECONDS: Final = Requirement(
    "a timedelta of whole seconds, from 0 to 68 years",
    lambda value: is_duration(value) and not value.microseconds,
)
RETRY: Final = Requirement("a Retry", lambda value: isinstance(value, Retry))
LABEL: Final = Requirement(
    f"text of 1 to {LONGEST_NAME} printable characters with no space at either end", _is_label
)
ITEM_ID: Final = Requirement(
    "a whole number, or text that is not empty",
    lambda value: is_integer(value, -LARGEST_ID, LARGEST_ID) or (isinstance(value, str) and value != ""),
)


ID_DESCRIPTION: Final = f"an id: a whole number from 0 to {LARGEST_ID}"
ID: Final = Requirement(ID_DESCRIPTION, is_id)
ID_OR_NONE: Final = Requirement(ID_DESCRIPTION, lambda value: value is None or is_id(value))
PAGE: Final = Requirement(
    f"a whole number from 1 to {LONGEST_PAGE}", lambda value: is_integer(value, 1, LONGEST_PAGE)
)
SLOTS_OR_NONE: Final = Requirement(
    f"a whole number from 1 to {MAX_SLOTS}", lambda value: value is None or is_integer(value, 1, MAX_SLOTS)
)
TEXT: Final = Requirement("text", lambda value: isinstance(value, str))
TEXT_OR_NONE: Final = Requirement("text, or None", lambda value: value is None or isinstance(value, str))
FLAG_OR_NONE: Final = Requirement(
    "True, False or None", lambda value: value is None or isinstance(value, bool)
)
CALLABLE_OR_NONE: Final = Requirement("callable, or None", lambda value: value is None or callable(value))
NAME: Final = Requirement(
    f"text of at most {LONGEST_NAME} characters",
    lambda value: isinstance(value, str) and len(value) <= LONGEST_NAME,
)
NAME_OR_NONE: Final = Requirement(NAME.expected, lambda value: value is None or NAME.is_valid(value))
ID_OR_NAME: Final = Requirement(
    f"{ID_DESCRIPTION}, or text of at most {LONGEST_NAME} characters",
    lambda value: is_id(value) or NAME.is_valid(value),
)
WHOLE: Final = Requirement(
    "a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)
)
MOMENT: Final = Requirement(f"{MOMENT_TEXT}, such as datetime.now(UTC)", is_moment)
MOMENT_OR_NONE: Final = Requirement(MOMENT.expected, lambda value: value is None or is_moment(value))
MOMENT_OR_AGO: Final = Requirement(
    f"{MOMENT_TEXT}, or a timedelta before now, or None",
    lambda value: value is None or is_moment(value) or is_duration(value),
)


def validate_ids(ids: Iterable[int]) -> list[int]:
    """Validate ids and drop duplicates."""
    given: Any = ids
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidArgument("ids", "a list of whole numbers", given)
    return list(dict.fromkeys(ID("each of the ids", one) for one in cast("Iterable[Any]", given)))


def check_names(**names: Any) -> None:
    """Validate names given by keyword; None is allowed."""
    for place, name in names.items():
        if name is not None:
            NAME(place, name)
