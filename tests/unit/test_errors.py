from __future__ import annotations

import inspect
import re

from trax import errors


def test_the_tree_drawn_at_the_head_is_the_tree_in_code() -> None:
    drawn = re.findall(r"^[│├└─ ]*(\w+)  +\S", errors.__doc__ or "", re.MULTILINE)
    tree = [
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.TraxError) and value is not errors.TraxError
    ]

    assert sorted(drawn) == sorted(tree)


def test_a_long_value_is_cut_in_a_message() -> None:
    assert len(errors.format_value("x" * 500)) == errors.MAX_VALUE_CHARACTERS


def test_a_word_that_is_nearly_right_is_suggested() -> None:
    assert errors.did_you_mean("gret", ["greet", "load"]) == "; did you mean 'greet'?"
    assert errors.did_you_mean("zzz", ["greet"]) == ""
