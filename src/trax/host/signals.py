"""SIGTERM and SIGINT as something to wait for."""

from __future__ import annotations

import asyncio
import signal

STOPPING = (signal.SIGTERM, signal.SIGINT)


async def stop_signal() -> None:
    """Return when the process is asked to end; a second signal then works as usual."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    for number in STOPPING:
        loop.add_signal_handler(number, asked.set)
    try:
        await asked.wait()
    finally:
        for number in STOPPING:
            loop.remove_signal_handler(number)
