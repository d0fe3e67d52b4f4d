from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trax.engine.capacity import Capacity, select_with_shares, select_within

A, B = 1, 2


class Entry(NamedTuple):
    name: str
    group_id: int | None


def queued(group_id: int | None, count: int, letter: str) -> list[Entry]:
    return [Entry(f"{letter}{number}", group_id) for number in range(1, count + 1)]


def names(capacity: Capacity, *groups: list[Entry]) -> list[str]:
    return [entry.name for entry in select_within(capacity, [entry for group in groups for entry in group])]


def test_the_worked_example() -> None:
    capacity = Capacity(limit=5, limits={A: 3, B: 3})

    assert names(capacity, queued(A, 4, "A"), queued(B, 4, "B")) == ["A1", "A2", "A3", "B1", "B2"]


@pytest.mark.parametrize(
    ("capacity", "entries", "expected"),
    [
        (Capacity(limit=100, active=95), queued(A, 50, "A"), "A1 A2 A3 A4 A5"),
        (Capacity(limit=5, active=4), queued(A, 3, "A"), "A1"),
        (
            Capacity(limit=None, limits={A: 2, B: 3}),
            queued(A, 4, "A") + queued(B, 5, "B"),
            "A1 A2 B1 B2 B3",
        ),
        (Capacity(limit=None), queued(A, 7, "A"), "A1 A2 A3 A4 A5 A6 A7"),
        (Capacity(limit=0), queued(A, 3, "A"), ""),
        (Capacity(limit=None, limits={A: 0}), queued(A, 3, "A") + queued(B, 2, "B"), "B1 B2"),
        (
            Capacity(limit=None, active=1, limits={A: 1}, active_by_group={A: 1}),
            queued(None, 1, "m") + queued(A, 3, "A"),
            "m1",
        ),
    ],
)
def test_the_table_of_situations(capacity: Capacity, entries: list[Entry], expected: str) -> None:
    assert names(capacity, entries) == expected.split()


def shared_names(capacity: Capacity, *groups: list[Entry]) -> list[str]:
    entries = [entry for group in groups for entry in group]
    return [entry.name for entry in select_with_shares(capacity, entries)]


def test_free_slots_that_are_left_go_to_groups_that_had_their_share() -> None:
    capacity = Capacity(limit=None, max_per_group=1, max_total=4)

    assert shared_names(capacity, queued(A, 4, "A"), queued(B, 2, "B")) == ["A1", "A2", "A3", "B1"]


def test_without_known_slots_no_group_gets_more_than_its_share() -> None:
    capacity = Capacity(limit=None, max_per_group=1)

    assert shared_names(capacity, queued(A, 4, "A"), queued(B, 2, "B")) == ["A1", "B1"]


def test_slots_that_are_left_respect_the_limits() -> None:
    capacity = Capacity(limit=5, active=1, limits={A: 2}, max_per_group=1, max_total=9)

    assert shared_names(capacity, queued(A, 4, "A"), queued(B, 4, "B")) == ["A1", "A2", "B1", "B2"]


def test_an_entry_without_a_group_counts_against_the_total() -> None:
    capacity = Capacity(limit=2, limits={A: 5})

    assert names(capacity, queued(None, 1, "m"), queued(A, 3, "A")) == ["m1", "A1"]


LIMITS = st.dictionaries(st.integers(1, 4), st.integers(0, 5))
ENTRIES = st.lists(st.builds(Entry, st.just("x"), st.none() | st.integers(1, 4)), max_size=30)


@given(
    limit=st.none() | st.integers(0, 12),
    active=st.integers(0, 6),
    limits=LIMITS,
    active_by_group=st.dictionaries(st.integers(1, 4), st.integers(0, 5)),
    entries=ENTRIES,
)
def test_no_limit_is_exceeded_and_no_usable_capacity_is_left(
    limit: int | None,
    active: int,
    limits: dict[int, int],
    active_by_group: dict[int, int],
    entries: list[Entry],
) -> None:
    capacity = Capacity(limit=limit, active=active, limits=limits, active_by_group=active_by_group)

    selected = select_within(capacity, entries)

    started = Counter(entry.group_id for entry in selected)
    assert limit is None or not selected or active + len(selected) <= limit
    for group_id, most in limits.items():
        assert not started[group_id] or active_by_group.get(group_id, 0) + started[group_id] <= most
    if not capacity.is_full(len(selected)):
        passed_over = Counter(entry.group_id for entry in entries) - started
        assert all(capacity.group_is_full(group_id, started[group_id]) for group_id in passed_over)
