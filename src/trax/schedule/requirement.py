"""Validate option values: the expectation for the error message, and its check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from trax.bounds import LARGEST_COUNT, LARGEST_ID, LONGEST_NAME, PRIORITY_MAX, is_duration, is_integer
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
