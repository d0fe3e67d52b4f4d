"""How large the benchmarks are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`quick` is small enough to see that everything works, and too small to learn anything from."""

    jobs: int = 20_000
    rounds: int = 3
    executions: int | None = None
    only: tuple[str, ...] = ()
    """Names of contenders; all of them if there is none."""
    quick: bool = False
    minutes: float | None = None
    """How long, of those that last."""

    def sized(self, usual: int, quick: int) -> int:
        return quick if self.quick else usual
