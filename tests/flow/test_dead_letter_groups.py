"""Dead letters by what went wrong: a canary first, then the rest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.support.databases import IN_MEMORY_TOO

from trax import Retry, Trax, TraxError, every
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

pytestmark = IN_MEMORY_TOO

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)


class DeadLetterHarness(Harness):
    """Jobs that fail until their trouble is over."""

    trouble = True

    async def gives_up(self, *inputs: str) -> None:
        await self.app.queue_many("load", inputs)
        await self.run_until_idle()
        await self.advance(minutes=1)


@pytest.fixture
async def h(url: str) -> AsyncGenerator[DeadLetterHarness]:
    app = Trax(url, max_active_jobs=None)
    harness = DeadLetterHarness(app, now=NOON)

    @app.train(retry=Retry(max_retries=1))
    async def load(table: str) -> None:
        if harness.trouble and table.startswith("disk"):
            raise OSError(f"no room for {len(table)} rows of '{table}'")
        if harness.trouble:
            raise LookupError(f"no table '{table}'")

    app.schedule(load, "nightly", "disk of the night", every(days=1), max_retries=1)
    async with harness:
        yield harness


async def test_letters_of_the_same_trouble_are_one_group(h: DeadLetterHarness) -> None:
    await h.gives_up("disk one", "users")
    await h.gives_up("disk number two")

    full, missing = await h.app.dead_letters.groups()

    assert (full.count, full.train, full.sample.input) == (3, "load", "disk number two")
    assert (full.first_at, full.last_at) == (NOON, NOON + timedelta(minutes=1))
    assert (full.sample.failure_exception, full.sample.failure_junction) == ("OSError", "load")
    assert full.sample.failure_reason == "no room for 15 rows of 'disk number two'"
    assert (missing.count, missing.sample.input) == (1, "users")
    alike = await h.app.dead_letters.list(fingerprint=full.fingerprint)
    assert [letter.fingerprint for letter in alike] == [full.fingerprint] * 3


async def test_a_letter_remembers_the_run_that_failed_last(h: DeadLetterHarness) -> None:
    await h.gives_up("users")

    for letter in await h.app.dead_letters.list():
        assert letter.last_metadata_id is not None
        run = await h.app.executions.get(letter.last_metadata_id)
        assert (run.input, run.failure_reason) == (letter.input, letter.failure_reason)


async def test_one_is_requeued_as_a_canary_and_then_the_rest(h: DeadLetterHarness) -> None:
    await h.gives_up("disk one", "disk two", "disk three", "users")
    (full, _) = await h.app.dead_letters.groups()
    h.trouble = False

    assert await h.app.dead_letters.requeue(fingerprint=full.fingerprint, limit=1) == 1
    await h.run_until_idle()
    (left, _) = await h.app.dead_letters.groups()
    assert left.count == full.count - 1

    assert await h.app.dead_letters.requeue(fingerprint=full.fingerprint) == 3
    await h.run_until_idle()
    assert [group.sample.input for group in await h.app.dead_letters.groups()] == ["users"]
    assert len(await h.app.executions.list(state="completed")) == 4


async def test_a_group_is_acknowledged(h: DeadLetterHarness) -> None:
    await h.gives_up("disk one", "users")
    (full, missing) = await h.app.dead_letters.groups()

    assert (
        await h.app.dead_letters.acknowledge(note="the table is gone", fingerprint=missing.fingerprint) == 1
    )

    assert await h.app.dead_letters.groups() == [full]


async def test_letters_must_be_named(h: DeadLetterHarness) -> None:
    with pytest.raises(TraxError, match="either ids or a fingerprint"):
        await h.app.dead_letters.requeue()
    with pytest.raises(TraxError, match="either ids or a fingerprint"):
        await h.app.dead_letters.requeue([1], fingerprint="x")
    with pytest.raises(TraxError, match="needs a note"):
        await h.app.dead_letters.acknowledge([1])
