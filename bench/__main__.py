"""Run the benchmarks: all of them, or those named (`make bench ARGS=train`)."""

from __future__ import annotations

import importlib
import sys

BENCHES = ("train", "store", "schedules")

for name in sys.argv[1:] or BENCHES:
    importlib.import_module(f"bench.{name}").main()
