from __future__ import annotations

from typing import Any

import pytest

from trax.errors import DefinitionError
from trax.records.states import MisfirePolicy
from trax.schedule import fire_all, policy_and_limit


@pytest.mark.parametrize(
    ("said", "stored"),
    [
        ("fire_once_now", (MisfirePolicy.FIRE_ONCE_NOW, None)),
        ("do_nothing", (MisfirePolicy.DO_NOTHING, None)),
        (MisfirePolicy.DO_NOTHING, (MisfirePolicy.DO_NOTHING, None)),
        (fire_all(10), (MisfirePolicy.FIRE_ALL, 10)),
    ],
)
def test_a_policy_is_a_name_or_fire_all_with_a_limit(said: Any, stored: object) -> None:
    assert policy_and_limit(said) == stored


@pytest.mark.parametrize("wrong", ["fire_all", "fire_one_now", "", None, 5])
def test_anything_else_is_refused_with_its_value(wrong: Any) -> None:
    with pytest.raises(DefinitionError, match=r"fire_all\(limit\) \(got "):
        policy_and_limit(wrong)


@pytest.mark.parametrize("wrong", [0, -1, 1001, 2.5, True, None, "10"])
def test_the_limit_has_a_limit(wrong: Any) -> None:
    with pytest.raises(DefinitionError, match="from 1 to 1000"):
        fire_all(wrong)
