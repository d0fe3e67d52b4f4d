"""The result of a due check: Fire, Wait or Never."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Fire:
    """Run now, for the occurrence `scheduled_for`: `now` for a first run, the latest missed if late."""

    scheduled_for: datetime


@dataclass(frozen=True, slots=True)
class Wait:
    """Not due; check again at `until`."""

    until: datetime


@dataclass(frozen=True, slots=True)
class Never:
    """Never due by time. `unreadable`: this server cannot evaluate the schedule, but another one may."""

    reason: str
    unreadable: bool = False


DueStatus: TypeAlias = Fire | Wait | Never
