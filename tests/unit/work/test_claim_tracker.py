from __future__ import annotations

from trax.worker.worker import ClaimTracker


async def test_a_run_held_and_known_is_no_orphan() -> None:
    claiming = ClaimTracker()

    for _ in range(3):
        assert claiming.orphans([1, 2], claiming.snapshot([1, 2])) == set()


async def test_a_run_unknown_in_two_checks_is_an_orphan() -> None:
    claiming = ClaimTracker()

    assert claiming.orphans([1, 2], claiming.snapshot([2])) == set()
    assert claiming.orphans([1, 2], claiming.snapshot([2])) == {1}


async def test_a_run_that_ends_during_a_check_is_no_orphan() -> None:
    claiming = ClaimTracker()
    async with claiming:
        assert claiming.orphans([1], claiming.snapshot([])) == set()

    before = claiming.snapshot([1])  # and then it ends, and is written, after it was seen

    assert claiming.orphans([1], before) == set()


async def test_a_check_during_a_claim_finds_no_orphans() -> None:
    claiming = ClaimTracker()

    async with claiming:
        for _ in range(3):
            assert claiming.orphans([1], claiming.snapshot([])) == set()
        before = claiming.snapshot([])

    assert claiming.orphans([1], before) == set()
    async with claiming:  # the next claim is not the one that could have brought it
        assert claiming.orphans([1], claiming.snapshot([])) == {1}
