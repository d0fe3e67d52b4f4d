"""A process whose clock is stepped while it runs, by libfaketime; its monotonic clock goes on as it did."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import timedelta


def library() -> Path | None:
    """Where Debian has the variant for programs with threads; None if it is not installed."""
    return next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


class SteppedClock:
    """The clock of those processes that are started in this environment."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.environment = {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        file.write_text("+0\n", encoding="utf-8")

    def step(self, offset: timedelta) -> None:
        """From now on it is this far from the true time."""
        written = self._file.with_suffix(".new")
        written.write_text(f"{offset.total_seconds():+.0f}\n", encoding="utf-8")
        written.replace(self._file)
