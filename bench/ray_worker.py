"""Plain tasks of a Ray cluster, in a separate process: Ray ends processes with their cluster."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Final

from bench.children import say

WARM_UP: Final = 40


def main() -> None:
    import ray

    library: Any = ray
    library.init(address=os.environ["CLUSTER"], log_to_driver=False, logging_level="error")
    say(ready=True)
    for line in sys.stdin:
        say(bare=_measure(library, *map(int, line.split())))


def _measure(ray: Any, many: int, single: int, rounds: int) -> tuple[list[float], list[float]]:
    """Tasks per second, from the first request to the last result, and the duration of a single task."""

    def nothing(number: int) -> None:
        """Do nothing."""

    noop = ray.remote(nothing)
    _seconds(ray, noop, min(WARM_UP, many))
    rates = [many / _seconds(ray, noop, many) for _ in range(rounds)]
    return rates, [_seconds(ray, noop, 1) for _ in range(single)]


def _seconds(ray: Any, noop: Any, tasks: int) -> float:
    began = time.perf_counter()
    ray.get([noop.remote(number) for number in range(tasks)])
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
