"""What the duties of this process have done since it began, for those who measure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Odometer:
    """Only ever counts up, a cycle at a time. Each number has one duty that writes it."""

    admitted: int = 0
    dead_letters: int = 0
    lost_workers: int = 0
