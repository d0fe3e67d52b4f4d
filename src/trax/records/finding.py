"""What an examination of the database finds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: what it is, how it stands, and, where that is wrong, what to do."""

    code: str
    text: str
    fix: str | None = None

    @property
    def is_wrong(self) -> bool:
        return self.fix is not None
