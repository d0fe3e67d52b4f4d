from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.declaring import (
    FIVE_MINUTES,
    NOTHING,
    ORDERS,
    USERS,
    Table,
    manifests,
    parents,
    publish,
    sync,
)

from trax.errors import DefinitionError
from trax.records.states import ScheduleType
from trax.schedule.builder import Declarations
from trax.schedule.declaration import Item


@pytest.fixture
def declarations() -> Declarations:
    return Declarations()


def test_then_include_depends_on_the_manifest_before(declarations: Declarations) -> None:
    (
        declarations.schedule(sync, "a", USERS, FIVE_MINUTES)
        .then_include(publish, "b", NOTHING)
        .then_include(publish, "c", NOTHING)
    )

    assert parents(declarations) == {"a": None, "b": "a", "c": "b"}


def test_include_depends_on_the_root(declarations: Declarations) -> None:
    (
        declarations.schedule(sync, "a", USERS, FIVE_MINUTES)
        .include(publish, "b", NOTHING)
        .include(publish, "c", NOTHING)
    )

    assert parents(declarations) == {"a": None, "b": "a", "c": "a"}


def test_include_returns_to_the_root_after_a_branch(declarations: Declarations) -> None:
    (
        declarations.schedule(sync, "a", USERS, FIVE_MINUTES)
        .include(publish, "b", NOTHING)
        .then_include(publish, "d", NOTHING)
        .include(publish, "c", NOTHING)
    )

    assert parents(declarations) == {"a": None, "b": "a", "d": "b", "c": "a"}


def test_a_new_schedule_in_a_chain_is_a_new_root(declarations: Declarations) -> None:
    (
        declarations.schedule(sync, "a", USERS, FIVE_MINUTES)
        .include(publish, "b", NOTHING)
        .schedule(sync, "x", ORDERS, FIVE_MINUTES)
        .include(publish, "y", NOTHING)
    )

    assert parents(declarations) == {"a": None, "b": "a", "x": None, "y": "x"}


def test_a_chain_can_branch_from_any_place_that_was_kept(declarations: Declarations) -> None:
    root = declarations.schedule(sync, "a", USERS, FIVE_MINUTES)

    root.include(publish, "b", NOTHING).then_include(publish, "d", NOTHING)
    root.then_include(publish, "c", NOTHING)

    assert parents(declarations) == {"a": None, "b": "a", "d": "b", "c": "a"}


def test_a_batch_in_a_chain_depends_on_the_root_unless_its_items_name_a_parent(
    declarations: Declarations,
) -> None:
    (
        declarations.schedule(sync, "a", USERS, FIVE_MINUTES)
        .include(publish, "b", NOTHING)
        .include_many(publish, "load", [Item("1", NOTHING), Item("2", NOTHING, depends_on="b")])
        .then_include_many(publish, "check", [Item("1", NOTHING, depends_on="load-1")])
        .include(publish, "c", NOTHING)
    )

    assert parents(declarations) == {
        "a": None,
        "b": "a",
        "load-1": "a",
        "load-2": "b",
        "check-1": "load-1",
        "c": "a",
    }


def test_after_many_roots_each_item_names_its_own(declarations: Declarations) -> None:
    tables = ["users", "orders"]

    declarations.schedule_many(
        sync, "sync", {table: Table(table=table) for table in tables}, FIVE_MINUTES
    ).include_many(
        sync,
        "load",
        [Item(table, Table(table=table), depends_on=f"sync-{table}") for table in tables],
        dormant=True,
    )

    found = manifests(declarations)
    assert found["load-orders"].depends_on == "sync-orders"
    assert found["load-orders"].schedule_type is ScheduleType.DORMANT_DEPENDENT
    assert found["sync-orders"].schedule_type is ScheduleType.INTERVAL


def test_a_chain_can_continue_from_a_manifest_declared_elsewhere(declarations: Declarations) -> None:
    declarations.after("elsewhere").include(publish, "b", NOTHING).then_include(publish, "c", NOTHING)

    assert parents(declarations) == {"b": "elsewhere", "c": "b"}


def test_nothing_can_be_included_before_a_schedule(declarations: Declarations) -> None:
    with pytest.raises(DefinitionError, match=r"include 'b' has no root .* must follow schedule"):
        declarations.include(publish, "b", NOTHING)
    with pytest.raises(DefinitionError, match="then_include 'b' has no single manifest before it"):
        declarations.then_include(publish, "b", NOTHING)


def test_a_batch_cannot_be_a_root_or_be_continued(declarations: Declarations) -> None:
    batch = declarations.schedule_many(sync, "sync", {"users": USERS}, FIVE_MINUTES)

    with pytest.raises(DefinitionError, match=r"include 'b' has no root .* include_many with Item"):
        batch.include(publish, "b", NOTHING)
    with pytest.raises(DefinitionError, match=r"then_include 'b' .* then_include_many with Item"):
        batch.then_include(publish, "b", NOTHING)
    with pytest.raises(DefinitionError, match="include_many: item '1' has nothing to depend on"):
        batch.include_many(publish, "load", {"1": NOTHING})


def test_a_once_manifest_cannot_be_a_root_or_be_continued(declarations: Declarations) -> None:
    once = declarations.schedule_once(sync, "once", USERS, delay=timedelta(minutes=5))

    with pytest.raises(DefinitionError, match="include 'b' has no root"):
        once.include(publish, "b", NOTHING)
    with pytest.raises(DefinitionError, match="then_include 'b'"):
        once.then_include(publish, "b", NOTHING)


def test_included_batches_keep_the_root_and_cannot_be_continued(
    declarations: Declarations,
) -> None:
    chain = declarations.schedule(sync, "a", USERS, FIVE_MINUTES).include_many(
        publish, "load", {"1": NOTHING}
    )

    with pytest.raises(DefinitionError, match="then_include 'b'"):
        chain.then_include(publish, "b", NOTHING)
    chain.include(publish, "c", NOTHING)

    assert parents(declarations)["c"] == "a"


def test_an_item_of_then_include_many_must_name_its_parent(declarations: Declarations) -> None:
    chain = declarations.schedule(sync, "a", USERS, FIVE_MINUTES)

    with pytest.raises(DefinitionError, match=r"then_include_many: item '1' .* Item\('1', …, depends_on=…\)"):
        chain.then_include_many(publish, "load", [Item("1", NOTHING)])

    assert list(manifests(declarations)) == ["a"]


def test_a_manifest_cannot_depend_on_itself(declarations: Declarations) -> None:
    with pytest.raises(DefinitionError, match="manifest 'load-1' depends on itself"):
        declarations.include_many(publish, "load", [Item("1", NOTHING, depends_on="load-1")])


def test_manifests_that_depend_on_each_other_are_refused_by_the_call_that_closes_the_circle(
    declarations: Declarations,
) -> None:
    declarations.after("c").include(publish, "a", NOTHING)
    chain = declarations.after("a").include(publish, "b", NOTHING)

    with pytest.raises(DefinitionError, match="a -> b -> c -> a"):
        chain.then_include(publish, "c", NOTHING)

    assert list(manifests(declarations)) == ["a", "b"]


def test_items_that_depend_on_each_other_are_refused_with_their_batch(declarations: Declarations) -> None:
    chain = declarations.schedule(sync, "root", USERS, FIVE_MINUTES)
    items = [Item("a", NOTHING, depends_on="x-b"), Item("b", NOTHING, depends_on="x-a")]

    with pytest.raises(DefinitionError, match="x-a -> x-b -> x-a"):
        chain.include_many(publish, "x", items)

    assert list(manifests(declarations)) == ["root"]


def test_a_refused_circle_leaves_nothing_behind(declarations: Declarations) -> None:
    declarations.after("b").include(publish, "a", NOTHING)
    with pytest.raises(DefinitionError, match="a -> b -> a"):
        declarations.after("a").include(publish, "b", NOTHING)

    declarations.schedule(sync, "b", USERS, FIVE_MINUTES)

    assert parents(declarations) == {"a": "b", "b": None}


def test_groups_that_depend_on_each_other_are_refused_by_the_call_that_closes_the_circle(
    declarations: Declarations,
) -> None:
    declarations.schedule(sync, "1", USERS, FIVE_MINUTES, group="A").include(publish, "2", NOTHING, group="B")
    chain = declarations.schedule(sync, "3", USERS, FIVE_MINUTES, group="B")

    with pytest.raises(DefinitionError, match=r"groups must form a DAG.*: A, B "):
        chain.include(publish, "4", NOTHING, group="A")

    assert list(manifests(declarations)) == ["1", "2", "3"]


def test_a_parent_declared_after_its_child_may_close_a_circle_of_groups(declarations: Declarations) -> None:
    declarations.schedule(sync, "1", USERS, FIVE_MINUTES, group="A").include(publish, "2", NOTHING, group="B")
    declarations.after("3").include(publish, "4", NOTHING, group="A")

    with pytest.raises(DefinitionError, match=r"groups must form a DAG.*A -> B -> A"):
        declarations.schedule(sync, "3", USERS, FIVE_MINUTES, group="B")

    assert list(manifests(declarations)) == ["1", "2", "4"]


def test_manifests_of_one_group_may_depend_on_each_other(declarations: Declarations) -> None:
    declarations.schedule(sync, "1", USERS, FIVE_MINUTES, group="A").then_include(
        publish, "2", NOTHING, group="A"
    ).then_include(publish, "3", NOTHING, group="A")

    assert len(declarations.timetable().groups) == 1
