"""One job at a time for each unique key, from its entry to its end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.support.databases import IN_MEMORY_TOO

from trax import Retry, Trax
from trax.records import State
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trax import Train

pytestmark = IN_MEMORY_TOO

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
ONE_RETRY = Retry(max_retries=2, delay=timedelta(minutes=5))


@pytest.fixture
async def h(url: str) -> AsyncGenerator[Harness]:
    app = Trax(url)

    @app.train(retry=ONE_RETRY)
    async def greet(name: str) -> str:
        if name == "Mallory":
            raise ValueError(name)
        return name

    @app.train
    async def part(name: str) -> str:
        return name

    async with Harness(app, now=NOON) as opened:
        yield opened


@pytest.fixture
def greet(h: Harness) -> Train[str, str]:
    return h.app.trains.get("greet")


async def test_a_second_call_with_the_same_key_returns_the_first_entry(
    h: Harness, greet: Train[str, str]
) -> None:
    first = await h.app.queue(greet, "Ada", unique="ada", priority=3, group="mail")
    second = await h.app.queue(greet, "Grace", unique="ada")

    assert second == first
    assert (second.id, second.input, second.group) == (first.id, "Ada", "mail")
    assert [one.id for one in await h.app.work_queue.list()] == [first.id]


async def test_other_keys_no_keys_and_other_trains_are_not_held_up(
    h: Harness, greet: Train[str, str]
) -> None:
    entries = [
        await h.app.queue(greet, "Ada", unique="ada"),
        await h.app.queue(greet, "Ada", unique="Ada"),
        await h.app.queue(greet, "Ada"),
        await h.app.queue(greet, "Ada"),
        await h.app.queue("part", "Ada", unique="ada"),
    ]

    assert len({entry.id for entry in entries}) == 5


async def test_the_key_is_held_while_the_run_is_pending(h: Harness, greet: Train[str, str]) -> None:
    first = await h.app.queue(greet, "Ada", unique="ada")
    await h.cycle("job_dispatcher")

    second = await h.app.queue(greet, "Ada", unique="ada")

    assert (second.id, second.status) == (first.id, "dispatched")


async def test_the_key_is_held_while_the_run_is_in_progress(h: Harness) -> None:
    inside: list[int] = []

    @h.app.train
    async def nested(name: str) -> None:
        again = await h.app.queue("nested", name, unique="n")
        inside.append(again.id)

    first = await h.app.queue(nested, "Ada", unique="n")
    await h.cycle("job_dispatcher")
    await h.work()

    assert inside == [first.id]


async def test_the_key_is_free_once_the_run_has_completed(h: Harness, greet: Train[str, str]) -> None:
    first = await h.app.queue(greet, "Ada", unique="ada")
    await h.run_until_idle()

    second = await h.app.queue(greet, "Ada", unique="ada")
    third = await h.app.queue(greet, "Ada", unique="ada")

    assert first.id != second.id == third.id


async def test_the_key_is_held_through_retries_and_free_with_the_dead_letter(
    h: Harness, greet: Train[str, str]
) -> None:
    first = await h.app.queue(greet, "Mallory", unique="m")
    await h.run_until_idle()
    while_it_waits = await h.app.queue(greet, "Mallory", unique="m")
    await h.advance(minutes=5)
    await h.run_until_idle()

    afterwards = await h.app.queue(greet, "Mallory", unique="m")

    assert while_it_waits.id == first.id != afterwards.id
    assert len(await h.app.dead_letters.list()) == 1


async def test_the_key_is_free_once_the_entry_is_withdrawn(h: Harness, greet: Train[str, str]) -> None:
    first = await h.app.queue(greet, "Ada", unique="ada")
    await h.app.work_queue.cancel([first.id])

    second = await h.app.queue(greet, "Ada", unique="ada")

    assert first.id != second.id


async def test_the_key_is_free_once_the_run_is_cancelled(h: Harness, greet: Train[str, str]) -> None:
    first = await h.app.queue(greet, "Ada", unique="ada")
    (run,) = (await h.cycle("job_dispatcher")).metadata_ids
    await h.app.executions.cancel([run])

    second = await h.app.queue(greet, "Ada", unique="ada")

    assert first.id != second.id
    assert (await h.app.executions.get(run)).state is State.CANCELLED


async def test_a_job_whose_key_was_reused_can_still_be_read(h: Harness, greet: Train[str, str]) -> None:
    first = await h.app.queue(greet, "Ada", unique="ada")
    await h.run_until_idle()
    await h.app.queue(greet, "Ada", unique="ada")
    await h.run_until_idle()

    runs = [await entry.wait() for entry in await h.app.work_queue.list()]

    assert [run.state for run in runs] == [State.COMPLETED] * 2
    assert (await h.app.work_queue.get(first.id)).status == "dispatched"


async def given_up(h: Harness) -> int:
    """Have the job of a key give up; its letter."""
    before = {letter.id for letter in await h.app.dead_letters.list()}
    await h.app.queue("greet", "Mallory", unique="m")
    await h.run_until_idle()
    await h.advance(minutes=5)
    await h.run_until_idle()
    (letter,) = [one.id for one in await h.app.dead_letters.list() if one.id not in before]
    return letter


async def test_a_requeued_letter_has_the_key_of_its_job(h: Harness, greet: Train[str, str]) -> None:
    letter = await given_up(h)
    await h.app.dead_letters.requeue([letter])
    (requeued,) = await h.app.work_queue.list(status="queued")

    again = await h.app.queue(greet, "Mallory", unique="m")

    assert (again.id, requeued.dead_letter_id) == (requeued.id, letter)


@pytest.mark.parametrize("has_begun", [False, True])
async def test_a_letter_whose_key_another_job_holds_is_answered_by_that_job(
    h: Harness, greet: Train[str, str], has_begun: bool
) -> None:
    letter = await given_up(h)
    other = await h.app.queue(greet, "Ada", unique="m")
    if has_begun:
        await h.cycle("job_dispatcher")

    assert await h.app.dead_letters.requeue([letter]) == 1

    assert [one.id for one in await h.app.work_queue.list() if one.input == "Ada"] == [other.id]
    assert await h.app.work_queue.list(origin="requeue") == []
    await h.run_until_idle()
    run = await other.wait()
    answered = await h.app.dead_letters.get(letter)
    assert (answered.status, answered.retry_metadata_id) == ("retried", run.id)


async def test_letters_of_one_key_are_requeued_as_one_job(h: Harness) -> None:
    letters = [await given_up(h), await given_up(h)]

    assert await h.app.dead_letters.requeue(letters) == 2

    assert len(await h.app.work_queue.list(status="queued")) == 1


async def test_a_rerun_claims_its_key_even_after_another_job_used_it(
    h: Harness, greet: Train[str, str]
) -> None:
    first = await h.app.queue(greet, "Ada", unique="ada")
    await h.run_until_idle()
    run = await first.wait()
    other = await h.app.queue(greet, "Grace", unique="ada")

    while_held = await h.app.executions.rerun(run.id)
    await h.run_until_idle()
    afterwards = await h.app.executions.rerun(run.id)

    assert while_held.id == other.id
    assert (afterwards.input, afterwards.origin) == ("Ada", "rerun")
    assert (await h.app.queue(greet, "Ada", unique="ada")).id == afterwards.id


def test_blocking_code_has_keys_too(url: str) -> None:
    app = Trax(url)

    @app.train
    def tick() -> None: ...

    first, second = (app.sync.queue(tick, None, unique="one") for _ in range(2))
    app.close()

    assert first == second
