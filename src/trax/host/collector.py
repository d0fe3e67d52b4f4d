"""The garbage collector, in a process that does nothing but run an app."""

from __future__ import annotations

import gc
from typing import Final

YOUNG: Final = 10_000
"""How many new objects there may be before the young ones are looked through; Python's own number is 700."""


def spare_what_is_loaded() -> None:
    """Leave out of every collection to come what is there by now: modules, models, statements.

    A job leaves hundreds of objects behind, none of them in a circle. With Python's own numbers the collector
    looks through all that was ever imported every few thousand jobs, and everybody waits for it meanwhile.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
