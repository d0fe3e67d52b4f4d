from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.declaring import (
    FIVE_MINUTES,
    NOTHING,
    ORDERS,
    USERS,
    Table,
    groups,
    manifests,
    publish,
    sync,
)

from trax.errors import DefinitionError, InvalidInput
from trax.records.states import MisfirePolicy
from trax.schedule.builder import Declarations
from trax.schedule.declaration import Group, Item

if TYPE_CHECKING:
    from trax.schedule.declaration import ScheduleKeywords


@pytest.fixture
def declarations() -> Declarations:
    return Declarations()


def test_a_named_batch_provides_ids_group_and_owner(declarations: Declarations) -> None:
    declarations.schedule_many(sync, "sync", [Item(key, USERS) for key in ("1", "2", "3")], FIVE_MINUTES)

    found = manifests(declarations)
    assert list(found) == ["sync-1", "sync-2", "sync-3"]
    assert {each.group for each in found.values()} == {"sync"}
    assert {each.batch for each in found.values()} == {"sync"}
    assert list(groups(declarations)) == ["sync"]


def test_inputs_may_come_by_id(declarations: Declarations) -> None:
    declarations.schedule_many(sync, "sync", {"users": USERS, "orders": ORDERS}, FIVE_MINUTES)

    inputs = {external_id: each.input for external_id, each in manifests(declarations).items()}
    assert inputs == {"sync-users": '{"table":"users"}', "sync-orders": '{"table":"orders"}'}


def test_ids_may_be_numbers_and_items_may_come_from_a_generator(declarations: Declarations) -> None:
    declarations.schedule_many(sync, "by-key", {1: USERS}, FIVE_MINUTES)
    declarations.schedule_many(sync, "made", (Item(number, USERS) for number in range(2)), FIVE_MINUTES)

    assert list(manifests(declarations)) == ["by-key-1", "made-0", "made-1"]


def test_a_batch_without_a_name_owns_nothing_and_is_grouped_by_its_first_item(
    declarations: Declarations,
) -> None:
    declarations.schedule_many(sync, None, {"users": USERS, "orders": ORDERS}, FIVE_MINUTES)

    found = manifests(declarations)
    assert list(found) == ["users", "orders"]
    assert {(each.group, each.batch) for each in found.values()} == {("users", None)}


def test_the_group_of_a_batch_may_be_another_one(declarations: Declarations) -> None:
    declarations.schedule_many(
        sync, "sync", {"1": USERS}, FIVE_MINUTES, group=Group("etl", max_active_jobs=4, priority=20)
    )

    assert manifests(declarations)["sync-1"].group == "etl"
    assert manifests(declarations)["sync-1"].batch == "sync"
    assert groups(declarations)["etl"].max_active_jobs == 4


def test_an_empty_batch_declares_nothing(declarations: Declarations) -> None:
    declarations.schedule_many(sync, "sync", {}, FIVE_MINUTES, group=Group("etl", max_active_jobs=1))

    assert declarations.timetable().manifests == ()
    assert declarations.timetable().groups == ()


def test_all_options_apply_to_every_item(declarations: Declarations) -> None:
    declarations.schedule_many(
        sync,
        "sync",
        {"1": USERS, "2": ORDERS},
        FIVE_MINUTES,
        priority=5,
        max_retries=7,
        on_misfire="do_nothing",
        misfire_threshold=timedelta(minutes=3),
        variance=timedelta(seconds=30),
        enabled=False,
    )

    for each in manifests(declarations).values():
        assert (each.priority, each.max_retries, each.enabled) == (5, 7, False)
        assert each.misfire_policy is MisfirePolicy.DO_NOTHING
        assert each.misfire_threshold == timedelta(minutes=3)
        assert each.schedule
        assert each.schedule.variance_seconds == 30


def test_an_item_may_have_options_of_its_own_which_have_the_last_word(declarations: Declarations) -> None:
    def configured(item: Item[Table]) -> ScheduleKeywords | None:
        return {"priority": 20, "group": "hot"} if item.input.table == "orders" else None

    declarations.schedule_many(
        sync,
        "sync",
        {"1": USERS, "2": ORDERS},
        FIVE_MINUTES,
        configure_each=configured,
        priority=5,
        max_retries=1,
    )

    found = manifests(declarations)
    assert [(each.priority, each.group) for each in found.values()] == [(5, "sync"), (20, "hot")]
    assert [each.max_retries for each in found.values()] == [1, 1]


def test_a_wrong_option_of_an_item_is_refused_by_the_manifests_name(declarations: Declarations) -> None:
    with pytest.raises(DefinitionError, match="manifest 'sync-1': priority must be"):
        declarations.schedule_many(
            sync, "sync", {"1": USERS}, FIVE_MINUTES, configure_each=lambda _: {"priority": 99}
        )


def test_one_wrong_item_keeps_the_whole_batch_out(declarations: Declarations) -> None:
    wrong: Any = NOTHING

    with pytest.raises(InvalidInput, match="manifest 'sync-2': train 'sync': invalid input"):
        declarations.schedule_many(sync, "sync", {"1": USERS, "2": wrong}, FIVE_MINUTES, group="etl")

    assert declarations.timetable().manifests == ()
    assert declarations.timetable().groups == ()


def test_an_id_that_comes_twice_keeps_the_whole_batch_out(declarations: Declarations) -> None:
    with pytest.raises(DefinitionError, match="'sync-1' is declared twice"):
        declarations.schedule_many(sync, "sync", [Item("1", USERS), Item(1, ORDERS)], FIVE_MINUTES)

    assert declarations.timetable().manifests == ()


def test_an_item_with_a_schedule_depends_on_nothing(declarations: Declarations) -> None:
    with pytest.raises(DefinitionError, match=r"item '1' depends on 'a', .* use include_many"):
        declarations.schedule_many(sync, "sync", [Item("1", USERS, depends_on="a")], FIVE_MINUTES)


@pytest.mark.parametrize("items", [["users"], "users", 3, None, [("users", USERS)]])
def test_an_invalid_collection_of_items_is_refused_with_the_expected_types(
    declarations: Declarations, items: Any
) -> None:
    with pytest.raises(DefinitionError, match=r"batch 'sync' needs a mapping .* or an Item\(id, input\)"):
        declarations.schedule_many(sync, "sync", items, FIVE_MINUTES)


@pytest.mark.parametrize("item_id", ["", None, True, 1.5])
def test_an_items_id_is_text_or_a_number(item_id: Any) -> None:
    with pytest.raises(DefinitionError, match="an item's id must be"):
        Item(item_id, USERS)


@pytest.mark.parametrize("name", ["", "two words", "x" * 201, 3])
def test_the_name_of_a_batch_can_stand_in_an_id(declarations: Declarations, name: Any) -> None:
    with pytest.raises(DefinitionError, match="a batch's name"):
        declarations.schedule_many(sync, name, {"1": USERS}, FIVE_MINUTES)


def test_a_parent_is_named_by_a_whole_external_id(declarations: Declarations) -> None:
    with pytest.raises(
        DefinitionError, match="manifest 'load-1': what it depends on must not contain spaces"
    ):
        declarations.include_many(publish, "load", [Item("1", NOTHING, depends_on="not an id")])


def test_ten_thousand_declarations_are_no_trouble_and_always_come_out_the_same() -> None:
    def declared() -> Declarations:
        declarations = Declarations()
        for number in range(5_000):
            declarations.schedule(
                sync, f"root-{number}", USERS, FIVE_MINUTES, group=f"g{number % 50}", priority=number % 32
            )
        declarations.include_many(
            sync,
            "leaf",
            [Item(number, USERS, depends_on=f"root-{number}") for number in range(5_000)],
            group=Group("leaves", max_active_jobs=4),
        )
        return declarations

    timetable = declared().timetable()

    assert len(timetable.manifests) == 10_000
    assert len(timetable.groups) == 51
    assert timetable == declared().timetable()
