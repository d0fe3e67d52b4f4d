from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trax.engine.routing import Routing, build_admissions
from trax.store.gate_memory import Candidate
from trax.store.runs.claim import Claimed, ClaimRequest

ELSEWHERE = Routing(submitters={"far": "cluster"}, exempt=frozenset({"small"}))
HEAVY = frozenset({"heavy"})


def waiting(*trains: str, **columns: Any) -> list[Candidate]:
    first = Candidate(0, "", None, None)._replace(**columns)
    return [first._replace(id=number, train=train) for number, train in enumerate(trains, start=1)]


def taken(*trains: str) -> list[Claimed]:
    return [Claimed(number, "x", train, None, None, 1, 0, None, None) for number, train in enumerate(trains)]


def worker(slots: int, *trains: str, cpu_slots: int = 0) -> ClaimRequest:
    return ClaimRequest(7, "box", slots, frozenset(trains), cpu_slots, HEAVY)


def places(*given: Any, **options: Any) -> list[int | None]:
    return [one.worker_id for one in build_admissions(*given, **options)]


def test_a_worker_gets_the_first_it_has_slots_for() -> None:
    assert places(waiting("work", "work", "work"), Routing(), worker(2, "work")) == [7, 7, None]


def test_without_a_worker_at_the_gate_all_of_it_is_pending() -> None:
    first, second = build_admissions(waiting("work", "far"), ELSEWHERE, None)

    assert (first.worker_id, first.host, first.submitter) == (None, None, "local")
    assert (second.worker_id, second.host, second.submitter) == (None, None, "cluster")


def test_a_claimed_run_records_its_worker_and_host() -> None:
    (one,) = build_admissions(waiting("work"), Routing(), worker(1, "work"))

    assert (one.entry_id, one.worker_id, one.host) == (1, 7, "box")


def test_routed_and_unknown_trains_occupy_no_slot() -> None:
    assert places(waiting("far", "strange", "work"), ELSEWHERE, worker(1, "far", "work")) == [None, None, 7]


def test_slots_that_are_filled_already_are_not_given_twice() -> None:
    taker = worker(2, "work")

    assert places(waiting("work", "work"), Routing(), taker, claimed=taken("work")) == [7, None]
    assert places(waiting("work"), Routing(), taker, claimed=taken("work", "work", "work")) == [None]


def test_cpu_trains_get_as_many_slots_as_there_are_processes_left() -> None:
    taker = worker(4, "heavy", "work", cpu_slots=2)

    assert places(waiting("heavy", "heavy", "heavy", "work"), Routing(), taker) == [7, 7, None, 7]
    assert places(waiting("heavy", "heavy"), Routing(), taker, claimed=taken("heavy")) == [7, None]


def test_exempt_entries_and_requeued_letters_are_marked() -> None:
    exempt, plain = build_admissions(waiting("small", "work"), ELSEWHERE, None)
    (answer,) = build_admissions(waiting("work", dead_letter_id=3), Routing(), None)

    assert (exempt.exempt, plain.exempt) == (True, False)
    assert (answer.from_dead_letter, plain.from_dead_letter) == (True, False)


TRAINS = st.sampled_from(["work", "heavy", "far", "strange"])


@given(
    entries=st.lists(TRAINS, max_size=20),
    before=st.lists(st.sampled_from(["work", "heavy"]), max_size=6),
    slots=st.integers(0, 8),
    cpu_slots=st.integers(0, 4),
)
def test_no_worker_gets_more_than_its_slots_and_no_usable_slot_stays_empty(
    entries: list[str], before: list[str], slots: int, cpu_slots: int
) -> None:
    taker = worker(slots, "work", "heavy", "far", cpu_slots=cpu_slots)

    placements = build_admissions(waiting(*entries), ELSEWHERE, taker, claimed=taken(*before))

    held = [train for train, one in zip(entries, placements, strict=True) if one.worker_id is not None]
    left = [train for train, one in zip(entries, placements, strict=True) if one.worker_id is None]
    room, cpu_room = slots - len(before), cpu_slots - before.count("heavy")
    assert [one.entry_id for one in placements] == list(range(1, len(entries) + 1))
    assert set(held) <= {"work", "heavy"}
    assert len(held) <= max(0, room)
    assert held.count("heavy") <= max(0, cpu_room)
    if "work" in left:
        assert len(held) >= room
