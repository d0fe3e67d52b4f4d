"""What is nobody's business is hidden wherever it stands."""

from __future__ import annotations

from typing import Any

import pytest

from trax.web.masking import HIDDEN, USUAL, Mask


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"password": "hunter2", "user": "ada"}, {"password": HIDDEN, "user": "ada"}),
        ({"a": [{"API-Key": 7}, {"Token": ["x"]}]}, {"a": [{"API-Key": HIDDEN}, {"Token": HIDDEN}]}),
        ({"password": None}, {"password": None}),
        ("password", "password"),
        (None, None),
    ],
)
def test_values_are_hidden_by_name_at_any_depth(value: Any, shown: Any) -> None:
    assert Mask.over(USUAL)(value) == shown


def test_the_names_can_be_chosen() -> None:
    mask = Mask.over(["iban"])

    assert mask({"iban": "DE02", "password": "shown"}) == {"iban": HIDDEN, "password": "shown"}
    assert Mask.over(())({"password": "shown"}) == {"password": "shown"}
