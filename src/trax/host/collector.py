"""Garbage collector settings for a process that only runs an app."""

from __future__ import annotations

import gc
from typing import Final

YOUNG_THRESHOLD: Final = 10_000
"""New objects before the young generation is collected; Python's default is 700."""


def freeze_loaded_objects() -> None:
    """Exclude everything loaded so far (modules, models, statements) from future collections.

    A job allocates hundreds of objects without cycles. With Python's defaults the collector scans everything
    ever imported every few thousand jobs, and the process stops meanwhile.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_THRESHOLD, *gc.get_threshold()[1:])
