"""Concurrent equal reads share one query."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from trax.web import context
from trax.web.context import SharedReads

if TYPE_CHECKING:
    import pytest


class Asked:
    """Counts how often somebody asked."""

    def __init__(self) -> None:
        self.times = 0
        self.may_answer = asyncio.Event()

    async def __call__(self) -> int:
        self.times += 1
        await self.may_answer.wait()
        return self.times


async def test_concurrent_equal_reads_share_one_answer() -> None:
    answers, ask = SharedReads(), Asked()

    together = asyncio.gather(*(answers.get("a-1", "home", ask) for _ in range(50)))
    ask.may_answer.set()

    assert await together == [1] * 50


async def test_a_new_mark_or_another_question_is_read_again() -> None:
    answers, ask = SharedReads(), Asked()
    ask.may_answer.set()

    given = [await answers.get(mark, what, ask) for mark, what in (("1", "a"), ("1", "b"), ("2", "a"))]

    assert given == [1, 2, 3]


async def test_an_answer_grows_old_though_nothing_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "LASTS_SECONDS", -1.0)
    answers, ask = SharedReads(), Asked()
    ask.may_answer.set()

    assert [await answers.get("1", "a", ask) for _ in range(2)] == [1, 2]


async def test_a_cancelled_reader_does_not_cancel_the_others() -> None:
    answers, ask = SharedReads(), Asked()
    first = asyncio.create_task(answers.get("1", "a", ask))
    second = asyncio.create_task(answers.get("1", "a", ask))
    await asyncio.sleep(0)

    first.cancel()
    ask.may_answer.set()

    assert await second == 1


async def test_answers_that_are_not_read_again_are_evicted() -> None:
    answers, ask = SharedReads(), Asked()
    ask.may_answer.set()

    for number in range(1000):
        await answers.get("a-1", f"question {number}", ask)

    assert len(answers) <= context.MOST_SHARED
