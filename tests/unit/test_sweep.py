"""How many runs were active together, and which admissions went beyond a limit: beside a naive count."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from trax.inspect.limits_in_force import NOT_KNOWN, Limit, LimitTimeline
from trax.inspect.sweep import AdmittedRun, AttemptSweep, KeySweep, LimitSweep, OverlapSweep

START = datetime(2027, 3, 1, 12, tzinfo=UTC)
LONG_AGO = START - timedelta(days=1)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def run(
    run_id: int, begins: float, ends: float | None, group: int | None = None, *, direct: bool = False
) -> AdmittedRun:
    return AdmittedRun(run_id, group, at(begins), None if ends is None else at(ends), direct)


def limited(limit: Limit) -> LimitTimeline:
    return LimitTimeline([(LONG_AGO, limit)])


class Exceeded(NamedTuple):
    run_id: int
    active: int


def find_exceeded(limit: Limit, *runs: AdmittedRun) -> list[Exceeded]:
    sweep = OverlapSweep(limited(limit))
    found = [sweep.add(each) for each in runs]
    return [Exceeded(each.run.id, each.active) for each in found if each is not None]


def test_an_admission_at_the_limit_is_a_violation() -> None:
    assert find_exceeded(2, run(1, 0, 10), run(2, 1, 10), run(3, 2, 10)) == [Exceeded(3, 2)]


def test_an_end_at_the_moment_of_an_admission_has_freed_its_place() -> None:
    assert find_exceeded(1, run(1, 0, 5), run(2, 5, 9)) == []


def test_a_run_without_an_end_is_active_for_ever() -> None:
    assert find_exceeded(1, run(1, 0, None), run(2, 1_000_000, None)) == [Exceeded(2, 1)]


def test_runs_without_a_duration_hold_no_place() -> None:
    assert find_exceeded(1, run(1, 0, 0), run(2, 0, 0), run(3, 0, 5)) == []


def test_a_disabled_group_admits_nothing() -> None:
    assert find_exceeded(0, run(1, 0, 1)) == [Exceeded(1, 0)]


def test_without_a_limit_nothing_is_a_violation() -> None:
    assert find_exceeded(None, run(1, 0, None), run(2, 1, None)) == []


def test_while_the_limit_is_not_known_admissions_are_only_counted() -> None:
    sweep = OverlapSweep(limited(NOT_KNOWN))

    assert [sweep.add(run(number, 0, None)) for number in (1, 2)] == [None, None]

    overlap = sweep.overlap("etl")
    assert (overlap.most, overlap.unknown, overlap.is_limit_known) == (2, 2, False)


def test_a_direct_run_passes_no_gate_but_counts_after_a_while() -> None:
    direct = run(1, 0, None, direct=True)

    assert find_exceeded(1, direct, run(2, 3600, None)) == [Exceeded(2, 1)]
    assert find_exceeded(1, run(3, 0, None), run(4, 3600, None, direct=True)) == []


def test_a_run_of_the_app_that_the_gate_may_not_have_seen_leaves_it_undecided() -> None:
    sweep = OverlapSweep(limited(1))

    assert [sweep.add(each) for each in (run(1, 0, None, direct=True), run(2, 1, None))] == [None, None]

    assert sweep.uncertain_admissions == 1


def test_the_limits_of_groups_and_the_global_one_are_counted_apart() -> None:
    sweep = LimitSweep(limited(2), {7: limited(1)})

    found = [sweep.add(each) for each in (run(1, 0, None, 7), run(2, 1, None, 8), run(3, 2, None, 7))]

    assert [(each.group_id, each.active) for each in found[-1]] == [(None, 2), (7, 1)]
    assert found[:2] == [[], []]
    assert not sweep.groups[8].overlap("unknown").is_limit_known


def test_runs_from_before_the_period_count() -> None:
    sweep = LimitSweep(limited(1), {})
    sweep.count_before(run(1, -100, 50))

    assert [each.active for each in sweep.add(run(2, 0, 5))] == [1]
    assert sweep.add(run(3, 60, 70)) == []


def test_the_densest_second_and_minute_are_found() -> None:
    sweep = OverlapSweep(limited(None))
    for number, second in enumerate((0.1, 0.9, 1.5, 61.0, 61.2, 61.9, 130)):
        sweep.add(run(number, second, second))

    overlap = sweep.overlap(None)

    assert (overlap.densest_second.admitted, overlap.densest_second.at) == (3, at(61))
    assert (overlap.densest_minute.admitted, overlap.densest_minute.at) == (3, at(0))


moments = st.integers(0, 30)
spans = st.tuples(moments, st.one_of(st.none(), st.integers(0, 10)), st.sampled_from([None, 1, 2]))
limits = st.one_of(st.none(), st.integers(0, 4))


@given(st.lists(spans, max_size=40), limits, limits)
def test_a_sweep_agrees_with_a_naive_count(
    drawn: list[tuple[int, int | None, int | None]], limit: int | None, group_limit: int | None
) -> None:
    ordered = sorted(drawn, key=lambda each: each[0])
    runs = [
        run(number, begins, None if lasts is None else begins + lasts, group)
        for number, (begins, lasts, group) in enumerate(ordered)
    ]
    sweep = LimitSweep(limited(limit), {1: limited(group_limit), 2: limited(None)})

    found = {(each.run.id, each.group_id, each.active) for one in runs for each in sweep.add(one)}

    assert found == naive(runs, None, limit) | naive(
        [each for each in runs if each.group_id == 1], 1, group_limit
    )
    assert sweep.total.overlap(None).most == max((naive_active(runs, one) + 1 for one in runs), default=0)


def naive(runs: list[AdmittedRun], group: int | None, limit: int | None) -> set[tuple[int, int | None, int]]:
    counts = {one.id: naive_active(runs, one) for one in runs}
    return {(one, group, count) for one, count in counts.items() if limit is not None and count >= limit}


def naive_active(runs: list[AdmittedRun], one: AdmittedRun) -> int:
    """How many of the runs admitted before this one had not ended by its admission."""
    return sum(
        each.id < one.id and (each.ended_at is None or each.ended_at > one.admitted_at) for each in runs
    )


class Keyed(NamedTuple):
    created: int
    waits: int
    lasts: int | None
    key: str


keyed = st.builds(
    Keyed, moments, st.integers(0, 5), st.one_of(st.none(), st.integers(1, 10)), st.sampled_from("ab")
)


@given(st.lists(keyed, max_size=25))
def test_runs_of_one_key_that_overlap_are_found_as_a_naive_search_finds_them(drawn: list[Keyed]) -> None:
    entries = sorted(drawn, key=lambda each: each.created)
    spans = [
        (each.created + each.waits, None if each.lasts is None else each.created + each.waits + each.lasts)
        for each in entries
    ]
    sweep = KeySweep()

    found = {
        (number, other)
        for number, (entry, (begins, ends)) in enumerate(zip(entries, spans, strict=True))
        for other in sweep.add(
            number,
            ("train", entry.key),
            created_at=at(entry.created),
            admitted_at=at(begins),
            ended_at=None if ends is None else at(ends),
        )
    }

    assert found == {
        (one, other)
        for one in range(len(entries))
        for other in range(one)
        if entries[one].key == entries[other].key and overlap(spans[one], spans[other])
    }


def overlap(one: tuple[int, int | None], other: tuple[int, int | None]) -> bool:
    return (other[1] is None or one[0] < other[1]) and (one[1] is None or other[0] < one[1])


@given(
    spans=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 20), st.none() | st.integers(0, 20)), max_size=12
    )
)
def test_attempts_that_overlap_an_earlier_one_are_found(
    spans: list[tuple[str, int, int | None]],
) -> None:
    """Beside a naive search; each run is given with its job, its admission, and how long it took."""
    spans.sort(key=lambda span: span[1])
    sweep = AttemptSweep()
    seen: list[tuple[str, float]] = []

    for run_id, (job, begins, length) in enumerate(spans):
        ends = float("inf") if length is None else begins + length
        ended_at = None if length is None else at(ends)
        found = sweep.add(run_id, job, admitted_at=at(begins), ended_at=ended_at)
        earlier = [number for number, other in enumerate(seen) if other[0] == job and other[1] > begins]
        assert found in (earlier or [None])
        seen.append((job, ends))
