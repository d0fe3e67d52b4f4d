"""Waiting for something, so long."""

from __future__ import annotations

import asyncio

import pytest

from trax.clock import is_set_within


async def test_an_event_is_waited_for_so_long() -> None:
    event = asyncio.Event()
    assert not await is_set_within(event, 0)

    event.set()
    assert await is_set_within(event, None)


@pytest.mark.parametrize("steps", range(4))
async def test_a_cancellation_is_not_lost_when_the_event_comes_at_the_same_moment(steps: int) -> None:
    event = asyncio.Event()
    waiting = asyncio.create_task(is_set_within(event, 30))
    await asyncio.sleep(0)

    event.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    was_done = waiting.done()
    waiting.cancel()
    await asyncio.wait([waiting])

    assert waiting.cancelled() or was_done
