"""A count of rows that may be an estimate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

COUNT_LIMIT: Final = 10_000
"""Counting stops here, to bound its cost; a larger number is an estimate."""


@dataclass(frozen=True, slots=True)
class Count:
    """A number, and whether it is exact or an estimate."""

    number: int
    exact: bool = True

    def __str__(self) -> str:
        return str(self.number) if self.exact else f"about {self.number}"
