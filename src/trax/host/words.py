"""Parse a state, status or other enumerated value."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

from trax.errors import TraxError, did_you_mean, format_value

if TYPE_CHECKING:
    from enum import StrEnum

ChoiceT = TypeVar("ChoiceT", bound="StrEnum")


def parse_choice(choices: type[ChoiceT], value: str | None) -> ChoiceT | None:
    """Parse a value of this enum; None stays None. Raises TraxError with the valid values."""
    if value is None:
        return None
    try:
        return choices(value)
    except ValueError:
        words = [word.value for word in choices]
        hint = did_you_mean(str(value), words) or f"; expected one of {', '.join(words)}"
        noun = re.sub(r"(?<!^)(?=[A-Z])", " ", choices.__name__).lower()
        raise TraxError(f"invalid {noun} {format_value(value)}{hint}") from None
