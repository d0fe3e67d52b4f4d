"""How long the junctions of a run took, and their stored form."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class JunctionTiming:
    """One junction of a run: when it started, and how long it took."""

    name: str
    started_at: datetime
    seconds: float


def timings_to_json(steps: Iterable[tuple[str, float, float]]) -> str:
    """Steps are (name, seconds since the start of the run, duration in seconds)."""
    rows = [[name, round(after, 6), round(seconds, 6)] for name, after, seconds in steps]
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":"))


def timings_from_json(text: str | None, started_at: datetime | None) -> tuple[JunctionTiming, ...]:
    if text is None or started_at is None:
        return ()
    return tuple(
        JunctionTiming(name, started_at + timedelta(seconds=after), seconds)
        for name, after, seconds in json.loads(text)
    )
