from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.declaring import FIVE_MINUTES, NOTHING, publish

from trax.errors import DefinitionError
from trax.schedule.builder import Declarations
from trax.schedule.graph import (
    Dag,
    Edge,
    check_graph,
    check_group_cycles,
    check_manifest_cycles,
    group_edges,
    parents_first,
)

DIAMOND = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]


@pytest.mark.parametrize("edges", [[], [("a", "b")], DIAMOND, [("a", "b"), ("a", "b")]])
def test_edges_without_a_circle_are_accepted(edges: list[Edge]) -> None:
    check_manifest_cycles(edges)
    check_group_cycles(edges)


@pytest.mark.parametrize(
    ("edges", "path"),
    [
        ([("a", "a")], "a -> a"),
        ([("a", "b"), ("b", "a")], "a -> b -> a"),
        ([("c", "a"), ("b", "c"), ("a", "b")], "a -> b -> c -> a"),
        ([("root", "b"), ("b", "c"), ("c", "b"), ("c", "a-leaf")], "b -> c -> b"),
        ([*DIAMOND, ("d", "a")], "a -> b -> d -> a"),
    ],
)
def test_manifests_in_a_circle_are_refused_with_the_path(edges: list[Edge], path: str) -> None:
    with pytest.raises(DefinitionError, match=f"in a cycle: {path};"):
        check_manifest_cycles(edges)


def test_the_path_does_not_depend_on_the_order_of_the_edges() -> None:
    edges = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]

    said: set[str] = set()
    for shift in range(len(edges)):
        with pytest.raises(DefinitionError) as refused:
            check_manifest_cycles(edges[shift:] + edges[:shift])
        said.add(str(refused.value))

    assert len(said) == 1


def test_groups_in_a_circle_and_behind_it_are_refused_by_name_sorted() -> None:
    edges = [("z", "b"), ("b", "a"), ("a", "b"), ("a", "behind")]

    with pytest.raises(DefinitionError, match=r"groups must form a DAG.*: a, b, behind \(a -> b -> a\)"):
        check_group_cycles(edges)


def test_a_group_may_depend_on_itself() -> None:
    check_group_cycles([("etl", "etl"), ("etl", "reports"), ("etl", "reports")])


def test_edges_between_groups_follow_from_those_between_manifests_whose_group_is_known() -> None:
    edges = [("a", "b"), ("b", "c"), ("elsewhere", "c"), ("c", "nowhere")]

    assert group_edges(edges, {"a": "one", "b": "one", "c": "two"}) == [("one", "one"), ("one", "two")]


def test_a_chain_of_thousands_is_no_deeper_than_any_other() -> None:
    names = [f"m{number:05}" for number in range(10_000)]
    chain = list(pairwise(names))

    check_manifest_cycles(chain)
    with pytest.raises(DefinitionError, match=r"m00000 -> m00001 -> .* -> … \(10000 in all\) -> m00000;"):
        check_manifest_cycles([*chain, (names[-1], names[0])])


@given(st.lists(st.lists(st.tuples(*[st.sampled_from("abcdef")] * 2), max_size=3)))
def test_edges_added_a_few_at_a_time_are_refused_exactly_when_all_together_would_be(
    batches: list[list[Edge]],
) -> None:
    dag, kept = Dag(), list[Edge]()
    for batch in batches:
        try:
            check_group_cycles([*kept, *batch])
        except DefinitionError:
            assert dag.creates_cycle(batch)
        else:
            assert not dag.creates_cycle(batch)
            dag.add(batch)
            kept += batch


def test_a_parent_declared_after_its_child_moves_before_it_and_the_rest_stays() -> None:
    declarations = Declarations()
    declarations.schedule(publish, "first", NOTHING, FIVE_MINUTES)
    declarations.after("middle").include(publish, "leaf", NOTHING)
    declarations.schedule(publish, "second", NOTHING, FIVE_MINUTES)
    declarations.after("top").include(publish, "middle", NOTHING)
    declarations.after("elsewhere").include(publish, "top", NOTHING)

    ordered = declarations.timetable().manifests

    assert [each.external_id for each in ordered] == ["first", "top", "middle", "leaf", "second"]
    assert parents_first(ordered) == ordered


def test_declared_manifests_are_checked_together_with_stored_ones() -> None:
    declarations = Declarations()
    declarations.after("b").include(publish, "a", NOTHING)
    manifests = declarations.timetable().manifests

    check_graph(manifests, stored_parents={"b": None, "c": "b"})
    with pytest.raises(DefinitionError, match="a -> b -> a"):
        check_graph(manifests, stored_parents={"b": "a"})


def test_a_declared_manifest_replaces_the_stored_one() -> None:
    declarations = Declarations()
    declarations.schedule(publish, "a", NOTHING, FIVE_MINUTES).include(publish, "b", NOTHING, group="new")

    check_graph(
        declarations.timetable().manifests,
        stored_parents={"a": "b", "c": "b"},
        stored_groups={"a": "old", "b": "a", "c": "old"},
    )


def test_stored_groups_are_part_of_the_check_of_groups() -> None:
    declarations = Declarations()
    declarations.after("stored").include(publish, "back", NOTHING, group="etl")
    manifests = declarations.timetable().manifests
    stored = {"origin": "etl", "stored": "reports"}

    with pytest.raises(DefinitionError, match="etl, reports"):
        check_graph(manifests, stored_parents={"stored": "origin"}, stored_groups=stored)
