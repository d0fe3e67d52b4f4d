"""An event loop that runs one coroutine after the other, for what is driven step by step."""

from __future__ import annotations

import asyncio
import atexit
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def complete(verb: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop that runs nothing else."""
    return _event_loop().run_until_complete(verb)


@cache
def _event_loop() -> asyncio.AbstractEventLoop:
    """Kept, since a new one takes longer than most coroutines."""
    loop = asyncio.new_event_loop()
    atexit.register(loop.close)
    return loop
