from __future__ import annotations

from collections import Counter
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trax.schedule.decide import DueCandidate, select_fairly

Demand = dict[str, tuple[int, int]]


def waiting(demand: Demand) -> list[DueCandidate]:
    """Groups by name: (priority, how many are due)."""
    numbers = count()
    return [
        DueCandidate(next(numbers), group_id=ord(name), group_priority=priority)
        for name, (priority, due) in demand.items()
        for _ in range(due)
    ]


def served(demand: Demand, limit: int | None, turn: int = 0) -> dict[str, int]:
    chosen = select_fairly(waiting(demand), limit, turn=turn)
    return dict(Counter(chr(one.group_id) for one in chosen))


@pytest.mark.parametrize(
    ("limit", "demand", "expected"),
    [
        (10, {"L": (0, 30), "S": (0, 3)}, {"S": 3, "L": 7}),
        (10, {"A": (20, 8), "B": (10, 8), "C": (0, 8)}, {"A": 4, "B": 3, "C": 3}),
        (200, {"c": (0, 5000), "d": (0, 15)}, {"d": 15, "c": 185}),
        (None, {"A": (0, 7), "B": (0, 9)}, {"A": 7, "B": 9}),
        (2, {"A": (20, 5), "B": (10, 5), "C": (0, 5)}, {"A": 1, "B": 1}),
    ],
)
def test_the_shares_of_the_worked_examples(
    limit: int | None, demand: Demand, expected: dict[str, int]
) -> None:
    assert served(demand, limit) == expected


def test_with_fewer_places_than_groups_every_group_gets_its_turn() -> None:
    demand = {"A": (20, 5), "B": (10, 5), "C": (0, 5)}

    groups = {name for turn in range(3) for name in served(demand, 2, turn)}

    assert groups == {"A", "B", "C"}


DEMANDS = st.dictionaries(
    st.sampled_from("ABCDEF"), st.tuples(st.integers(0, 31), st.integers(1, 40)), min_size=1
)


@given(demand=DEMANDS, limit=st.integers(1, 100), turn=st.integers(0, 9))
def test_no_place_is_left_empty_and_no_entry_is_chosen_twice(demand: Demand, limit: int, turn: int) -> None:
    everyone = waiting(demand)

    chosen = select_fairly(everyone, limit, turn=turn)

    enough_groups = limit < len(demand)
    assert len(chosen) == (limit if enough_groups else min(limit, len(everyone)))
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(everyone)
