from __future__ import annotations

from typing import Any

import pytest
from tests.support.declaring import FIVE_MINUTES, NOTHING, USERS, groups, manifests, publish, sync

from trax.errors import DefinitionError
from trax.schedule.builder import Declarations
from trax.schedule.declaration import UNSET, Group, GroupDeclaration
from trax.train import Train, train


@pytest.fixture
def declarations() -> Declarations:
    return Declarations()


@pytest.fixture
def grouped() -> Train[Any, Any]:
    return train("grouped", sync.route, group="of-the-train", priority=7)


def test_a_manifest_without_a_group_has_one_of_its_own(declarations: Declarations) -> None:
    declarations.schedule(sync, "sync-users", USERS, FIVE_MINUTES).include(publish, "publish", NOTHING)

    assert {name: each.group for name, each in manifests(declarations).items()} == {
        "sync-users": "sync-users",
        "publish": "publish",
    }
    assert groups(declarations)["publish"] == GroupDeclaration(name="publish")


def test_a_group_may_be_a_name_or_a_group(declarations: Declarations) -> None:
    declarations.schedule(sync, "a", USERS, FIVE_MINUTES, group="etl")
    declarations.schedule(
        sync, "b", USERS, FIVE_MINUTES, group=Group("etl", max_active_jobs=3, enabled=False)
    )

    assert [each.group for each in manifests(declarations).values()] == ["etl", "etl"]
    assert groups(declarations)["etl"] == GroupDeclaration(name="etl", max_active_jobs=3, enabled=False)


def test_the_trains_group_is_used_where_the_schedule_names_none(
    declarations: Declarations, grouped: Train[Any, Any]
) -> None:
    declarations.schedule(grouped, "a", USERS, FIVE_MINUTES)
    declarations.schedule(grouped, "b", USERS, FIVE_MINUTES, group="etl")
    declarations.schedule_many(grouped, "sync", {"1": USERS}, FIVE_MINUTES)

    assert [each.group for each in manifests(declarations).values()] == [
        "of-the-train",
        "etl",
        "of-the-train",
    ]


def test_a_group_without_a_name_is_the_one_the_manifest_is_in_anyway(declarations: Declarations) -> None:
    declarations.schedule(sync, "a", USERS, FIVE_MINUTES, group=Group(max_active_jobs=1))

    assert groups(declarations)["a"].max_active_jobs == 1


def test_a_manifests_priority_is_its_groups_unless_the_group_has_one(declarations: Declarations) -> None:
    declarations.schedule(sync, "a", USERS, FIVE_MINUTES, priority=5)
    declarations.schedule(sync, "b", USERS, FIVE_MINUTES, priority=5, group=Group("etl", priority=20))
    declarations.schedule(sync, "c", USERS, FIVE_MINUTES, priority=6, group="etl")

    assert {name: each.priority for name, each in groups(declarations).items()} == {"a": 5, "etl": 20}


def test_a_trains_priority_is_its_manifests_and_their_groups(
    declarations: Declarations, grouped: Train[Any, Any]
) -> None:
    declarations.schedule(grouped, "a", USERS, FIVE_MINUTES)
    declarations.schedule(grouped, "b", USERS, FIVE_MINUTES, priority=0, group="low")

    assert [each.priority for each in manifests(declarations).values()] == [7, 0]
    assert groups(declarations)["of-the-train"].priority == 7
    assert groups(declarations)["low"].priority == 0


def test_an_undeclared_group_limit_differs_from_no_limit(declarations: Declarations) -> None:
    declarations.group("quiet")
    declarations.group("open", max_active_jobs=None)

    assert groups(declarations)["quiet"].max_active_jobs is UNSET
    assert groups(declarations)["open"].max_active_jobs is None
    assert repr(groups(declarations)["quiet"].max_active_jobs) == "UNSET"


def test_the_last_word_about_a_group_wins_field_by_field(declarations: Declarations) -> None:
    declarations.group("etl", max_active_jobs=3, priority=20)
    declarations.schedule(sync, "a", USERS, FIVE_MINUTES, group=Group("etl", max_active_jobs=4))
    declarations.group("etl", enabled=True)

    assert groups(declarations)["etl"] == GroupDeclaration(
        name="etl", max_active_jobs=4, priority=20, enabled=True
    )


def test_a_declared_group_can_be_handed_on(declarations: Declarations) -> None:
    etl = declarations.group("etl", max_active_jobs=3)

    declarations.schedule(sync, "a", USERS, FIVE_MINUTES, group=etl)

    assert manifests(declarations)["a"].group == "etl"


def test_groups_come_in_the_order_in_which_they_were_first_named(declarations: Declarations) -> None:
    declarations.schedule(sync, "a", USERS, FIVE_MINUTES, group="z")
    declarations.group("m")
    declarations.schedule(sync, "b", USERS, FIVE_MINUTES, group="z")
    declarations.schedule(sync, "c", USERS, FIVE_MINUTES)

    assert list(groups(declarations)) == ["z", "m", "c"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            {"max_active_jobs": -1},
            "group 'etl': max_active_jobs must be a whole number from 0 to 2147483647, or None",
        ),
        ({"max_active_jobs": True}, "max_active_jobs"),
        ({"priority": 32}, r"priority must be a whole number from 0 to 31 \(got 32\)"),
        ({"priority": None}, "priority"),
        ({"enabled": "yes"}, "enabled must be True or False"),
    ],
)
def test_a_group_that_cannot_work_is_refused(
    declarations: Declarations, words: dict[str, Any], message: str
) -> None:
    with pytest.raises(DefinitionError, match=message):
        Group("etl", **words)
    with pytest.raises(DefinitionError, match=message):
        declarations.group("etl", **words)


@pytest.mark.parametrize("name", ["", " etl", "a\nb", "x" * 201, 3])
def test_the_name_of_a_group_can_be_shown(declarations: Declarations, name: Any) -> None:
    with pytest.raises(DefinitionError, match="a group's name must be text"):
        declarations.group(name)
    with pytest.raises(DefinitionError, match="a group's name"):
        Group(name)


def test_a_group_of_another_kind_is_refused(declarations: Declarations) -> None:
    wrong: Any = 7

    with pytest.raises(
        DefinitionError, match=r"manifest 'a': group must be a group's name or a Group \(got 7\)"
    ):
        declarations.schedule(sync, "a", USERS, FIVE_MINUTES, group=wrong)
