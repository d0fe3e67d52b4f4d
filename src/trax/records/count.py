"""How many there are, as far as it was worth counting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

COUNTED_TO: Final = 10_000
"""Counting stops here, so that asking costs the same however much there is; beyond, one can estimate."""


@dataclass(frozen=True, slots=True)
class Count:
    """A number, and whether it was counted: where that would cost too much, it is an estimate."""

    number: int
    exact: bool = True

    def __str__(self) -> str:
        return str(self.number) if self.exact else f"about {self.number}"
