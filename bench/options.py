"""The sizes of the benchmarks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`quick` is enough to check that everything works, but its figures mean nothing."""

    jobs: int = 20_000
    rounds: int = 3
    executions: int | None = None
    only: tuple[str, ...] = ()
    """Names of contenders; empty: all."""
    quick: bool = False
    minutes: float | None = None
    """The duration of the benchmarks that have one."""

    def sized(self, usual: int, quick: int) -> int:
        return quick if self.quick else usual
