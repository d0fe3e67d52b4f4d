from __future__ import annotations

import asyncio

from trax.train import Run, current, enter_run, junction, train


def make(metadata_id: int) -> Run:
    return Run(metadata_id=metadata_id, external_id=f"{metadata_id:032x}", train="look")


@junction
async def look(number: int) -> int:
    run = current()
    return number if run is None else run.metadata_id


def test_there_is_no_run_outside_one() -> None:
    assert current() is None


async def test_a_junction_sees_the_run_it_is_part_of() -> None:
    whole = train("look", look)

    with enter_run(make(7)) as run:
        assert current() is run
        assert await whole.run(0) == 7
    assert await whole.run(0) == 0


async def test_runs_side_by_side_see_their_own() -> None:
    async def one(metadata_id: int) -> int:
        with enter_run(make(metadata_id)):
            await asyncio.sleep(0)
            return await train("look", look).run(0)

    assert await asyncio.gather(*(one(number) for number in range(1, 4))) == [1, 2, 3]


def test_a_run_knows_whether_its_cancellation_was_requested() -> None:
    run = make(1)
    assert not run.cancelled

    run.cancellation.interrupt("deploying")

    assert run.cancelled
