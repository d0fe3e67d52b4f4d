from __future__ import annotations

import inspect
import pickle
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from trax import errors

if TYPE_CHECKING:
    from collections.abc import Mapping

FIELDS = [errors.FieldError("table", "must be text", 5)]
ARGUMENTS: Mapping[str, tuple[Any, ...]] = {
    "DelayRequest": (timedelta(seconds=5), "not yet"),
    "InvalidArgument": ("limit", "a whole number", "many"),
    "InvalidInput": ("train 'greet'", FIELDS),
    "InvalidSetting": ("wrong", {"max_active_jobs": "too many"}),
    "MissingExtra": ("the dashboard", "web", "fastapi"),
    "RetryAfter": (timedelta(seconds=5),),
    "RouteError": ("CHAIN001", "does not fit"),
    "SecretUnreadable": ("train 'greet'", FIELDS),
    "Snooze": (timedelta(seconds=5), "later"),
    "UnknownTrain": ("gret", ["greet"]),
}
"""Of those that need more than a message."""


def test_the_tree_drawn_at_the_head_is_the_tree_in_code() -> None:
    drawn = re.findall(r"^[│├└─ ]*(\w+)  +\S", errors.__doc__ or "", re.MULTILINE)
    tree = [
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.TraxError) and value is not errors.TraxError
    ]

    assert sorted(drawn) == sorted(tree)


@pytest.mark.parametrize("name", sorted(set(errors.__all__) - {"FieldError"}))
def test_an_error_reaches_another_process_as_it_was(name: str) -> None:
    keywords = {"type": "KeyError", "raised": ["LookupError"]} if name == "RemoteFailure" else {}
    error = getattr(errors, name)(*ARGUMENTS.get(name, ("it failed",)), **keywords)

    arrived = pickle.loads(pickle.dumps(error))  # noqa: S301 - made one line above

    assert (type(arrived), str(arrived), arrived.args) == (type(error), str(error), error.args)
    assert vars(arrived) == vars(error)


def test_a_long_value_is_cut_in_a_message() -> None:
    assert len(errors.format_value("x" * 500)) == errors.MAX_VALUE_CHARACTERS


def test_a_duration_in_a_message_is_written_as_everywhere() -> None:
    assert errors.format_value(timedelta(minutes=90)) == "1 h 30 min"
    assert str(errors.RetryAfter(timedelta(minutes=5))) == "requested to run again after 5 min"


def test_a_word_that_is_nearly_right_is_suggested() -> None:
    assert errors.did_you_mean("gret", ["greet", "load"]) == "; did you mean 'greet'?"
    assert errors.did_you_mean("zzz", ["greet"]) == ""


@pytest.mark.parametrize(
    ("count", "noun", "plural", "expected"),
    [
        (1, "job", None, "1 job"),
        (0, "job", None, "0 jobs"),
        (1200, "job", None, "1,200 jobs"),
        (2, "entry", "entries", "2 entries"),
    ],
)
def test_a_count_has_its_noun(count: int, noun: str, plural: str | None, expected: str) -> None:
    assert errors.count_noun(count, noun, plural) == expected


def test_a_count_of_times_begins_with_once() -> None:
    assert [errors.count_times(count) for count in (1, 3, 1000)] == ["once", "3 times", "1,000 times"]


@errors.explain_call("move(left, *, steps=…)")
def move(left: int, *, steps: int = 1) -> int:
    """The one that is called."""
    if left < 0:
        raise TypeError("from inside")
    return left + steps


@pytest.mark.parametrize(
    ("args", "kwargs", "reason"),
    [
        ((), {}, "missing a required argument: 'left'"),
        ((1, 2), {}, "too many positional arguments"),
        ((1,), {"step": 2}, "got an unexpected keyword argument 'step'; did you mean 'steps'?"),
        ((1,), {"xyz": 2}, "got an unexpected keyword argument 'xyz'"),
    ],
)
def test_a_call_that_does_not_fit_shows_how_to_call(args: Any, kwargs: Any, reason: str) -> None:
    with pytest.raises(errors.DefinitionError) as refused:
        move(*args, **kwargs)

    assert str(refused.value) == f"expected move(left, *, steps=…): {reason}"


def test_a_call_that_fits_is_what_it_was() -> None:
    assert move(1, steps=2) == 3
    assert (move.__name__, move.__doc__) == ("move", "The one that is called.")
    with pytest.raises(TypeError, match="from inside"):
        move(-1)
