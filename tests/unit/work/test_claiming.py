from __future__ import annotations

from trax.work.claiming import Claiming


async def test_what_is_held_and_known_is_no_stray() -> None:
    claiming = Claiming()

    for _ in range(3):
        assert claiming.strays([1, 2], claiming.before([1, 2])) == set()


async def test_what_stays_unknown_is_a_stray_at_the_second_look() -> None:
    claiming = Claiming()

    assert claiming.strays([1, 2], claiming.before([2])) == set()
    assert claiming.strays([1, 2], claiming.before([2])) == {1}


async def test_what_ends_while_the_database_is_asked_is_no_stray() -> None:
    claiming = Claiming()
    async with claiming:
        assert claiming.strays([1], claiming.before([])) == set()

    before = claiming.before([1])  # and then it ends, and is written, after it was seen

    assert claiming.strays([1], before) == set()


async def test_a_claim_under_way_is_waited_for_however_often_others_look() -> None:
    claiming = Claiming()

    async with claiming:
        for _ in range(3):
            assert claiming.strays([1], claiming.before([])) == set()
        before = claiming.before([])

    assert claiming.strays([1], before) == set()
    async with claiming:  # the next claim is not the one that could have brought it
        assert claiming.strays([1], claiming.before([])) == {1}
