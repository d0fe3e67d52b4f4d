from __future__ import annotations

from trax.worker.worker import ClaimTracker


async def test_what_is_held_and_known_is_no_stray() -> None:
    claiming = ClaimTracker()

    for _ in range(3):
        assert claiming.orphans([1, 2], claiming.snapshot([1, 2])) == set()


async def test_what_stays_unknown_is_a_stray_at_the_second_look() -> None:
    claiming = ClaimTracker()

    assert claiming.orphans([1, 2], claiming.snapshot([2])) == set()
    assert claiming.orphans([1, 2], claiming.snapshot([2])) == {1}


async def test_what_ends_while_the_database_is_asked_is_no_stray() -> None:
    claiming = ClaimTracker()
    async with claiming:
        assert claiming.orphans([1], claiming.snapshot([])) == set()

    before = claiming.snapshot([1])  # and then it ends, and is written, after it was seen

    assert claiming.orphans([1], before) == set()


async def test_a_claim_under_way_is_waited_for_however_often_others_look() -> None:
    claiming = ClaimTracker()

    async with claiming:
        for _ in range(3):
            assert claiming.orphans([1], claiming.snapshot([])) == set()
        before = claiming.snapshot([])

    assert claiming.orphans([1], before) == set()
    async with claiming:  # the next claim is not the one that could have brought it
        assert claiming.orphans([1], claiming.snapshot([])) == {1}
