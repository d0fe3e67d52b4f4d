"""Words a caller gives for a state or a status."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from trax.errors import TraxError, did_you_mean, shown

if TYPE_CHECKING:
    from enum import StrEnum

WordT = TypeVar("WordT", bound="StrEnum")


def checked_word(kind: type[WordT], value: str | None) -> WordT | None:
    """The word as its kind, or None for none; any other word is refused with those there are."""
    if value is None:
        return None
    try:
        return kind(value)
    except ValueError:
        words = [word.value for word in kind]
        hint = did_you_mean(str(value), words) or f"; it is one of {', '.join(words)}"
        raise TraxError(f"{shown(value)} is no {kind.__name__}{hint}") from None
