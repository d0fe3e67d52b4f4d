"""Findings of `trax db doctor`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One check of the database: its code, its result, and, if there is a problem, how to fix it."""

    code: str
    text: str
    fix: str | None = None

    @property
    def is_wrong(self) -> bool:
        return self.fix is not None
