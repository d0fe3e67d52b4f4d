"""Values with secret names are hidden everywhere."""

from __future__ import annotations

from typing import Any

import pytest

from trax.masking import HIDDEN
from trax.web.masking import Mask


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"password": "hunter2", "user": "ada"}, {"password": HIDDEN, "user": "ada"}),
        ({"a": [{"API-Key": 7}, {"Token": ["x"]}]}, {"a": [{"API-Key": HIDDEN}, {"Token": HIDDEN}]}),
        ({"dbPassword": 7, "token_count": 7}, {"dbPassword": HIDDEN, "token_count": 7}),
        ({"password": None}, {"password": None}),
        ("password", "password"),
        (None, None),
    ],
)
def test_values_are_hidden_by_name_at_any_depth(value: Any, shown: Any) -> None:
    assert Mask()(value) == shown


def test_a_url_with_a_password_is_restored_from_a_form_and_never_shown() -> None:
    original = {"to": "postgresql://trax:hunter2@db/jobs", "user": "ada"}
    marked = Mask().mark(original)

    assert "hunter2" not in str(marked)
    assert Mask().restore(marked, original) == original
    assert Mask().restore({"moved": marked["to"]}, original) == {"moved": original["to"]}
    assert Mask()(original) == {"to": "postgresql://trax:***@db/jobs", "user": "ada"}


def test_the_names_can_be_chosen() -> None:
    mask = Mask.from_names(["iban"])

    assert mask({"iban": "DE02", "password": "shown"}) == {"iban": HIDDEN, "password": "shown"}
    assert Mask.from_names(())({"password": "shown"}) == {"password": "shown"}
