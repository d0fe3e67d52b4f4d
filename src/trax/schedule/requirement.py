"""What the value of an option must be: a few words for the message, and the check behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from trax.errors import DefinitionError, shown
from trax.records.states import PRIORITY_MAX
from trax.schedule.every import LONGEST_SECONDS
from trax.train import Retry
from trax.train.names import LONGEST_NAME

LONGEST: Final = timedelta(seconds=LONGEST_SECONDS)


@dataclass(frozen=True, slots=True)
class Requirement:
    """Gives a value back when it is what is wanted, and says what is wanted when it is not."""

    wanted: str
    holds: Callable[[Any], bool]

    def __call__(self, place: str, value: Any) -> Any:
        if not self.holds(value):
            raise DefinitionError(f"{place} must be {self.wanted} (got {shown(value)})")
        return value


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_label(value: Any) -> bool:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME:
        return False
    return value == value.strip() and value.isprintable()


def _is_duration(value: Any) -> bool:
    return isinstance(value, timedelta) and timedelta() <= value <= LONGEST


FLAG: Final = Requirement("True or False", lambda value: isinstance(value, bool))
COUNT: Final = Requirement("a whole number, 0 or more", lambda value: _is_whole(value) and value >= 0)
AT_LEAST_ONE: Final = Requirement("a whole number, 1 or more", lambda value: _is_whole(value) and value >= 1)
LIMIT: Final = Requirement(
    "a whole number, 0 or more, or None for no limit", lambda value: value is None or COUNT.holds(value)
)
PRIORITY: Final = Requirement(
    f"a whole number from 0 to {PRIORITY_MAX}", lambda value: COUNT.holds(value) and value <= PRIORITY_MAX
)
DURATION: Final = Requirement("a timedelta from 0 to 68 years", _is_duration)
TIME_LIMIT: Final = Requirement(
    "a timedelta above 0, up to 68 years", lambda value: _is_duration(value) and bool(value)
)
WHOLE_SECONDS: Final = Requirement(
    "a timedelta of whole seconds, from 0 to 68 years",
    lambda value: _is_duration(value) and not value.microseconds,
)
RETRY: Final = Requirement("a Retry", lambda value: isinstance(value, Retry))
LABEL: Final = Requirement(
    f"text of 1 to {LONGEST_NAME} printable characters with no space at either end", _is_label
)
ITEM_ID: Final = Requirement(
    "a whole number, or text that is not empty",
    lambda value: _is_whole(value) or (isinstance(value, str) and value != ""),
)
