"""The three answers to "is it due"."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Fire:
    """Run it now, for this occurrence: a first run for now itself, a late one for the latest missed."""

    scheduled_for: datetime


@dataclass(frozen=True, slots=True)
class Wait:
    """Not before then, when the answer can change."""

    until: datetime


@dataclass(frozen=True, slots=True)
class Never:
    """Time alone will not make it run. `unreadable`: this server cannot evaluate it, another one may."""

    reason: str
    unreadable: bool = False


Answer: TypeAlias = Fire | Wait | Never
