"""A train is used like the function it was made from, and names our verb for what other libraries offer."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from trax.errors import DefinitionError
from trax.train import junction, train, train_of


@junction
def double(number: int) -> int:
    return 2 * number


def test_a_train_of_one_function_calls_it() -> None:
    def greet(name: str) -> str:
        return f"Hello, {name}!"

    greeting = train_of(greet)

    assert (greeting("Ada"), greeting(name="Eve")) == ("Hello, Ada!", "Hello, Eve!")


async def test_a_train_of_one_async_function_is_awaited_like_it() -> None:
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

    assert await train_of(greet)("Ada") == "Hello, Ada!"


def test_a_train_of_several_junctions_cannot_be_called_and_names_the_alternative() -> None:
    quadruple = train("quadruple", double >> double)

    with pytest.raises(
        DefinitionError, match=r"train 'quadruple' has several junctions.*`await quadruple.run"
    ):
        quadruple(1)


@pytest.mark.parametrize(
    ("attribute", "verb"),
    [
        ("delay", "`await app.queue(twice, value)`"),
        ("send", "`app.sync.queue(twice, value)`"),
        ("apply_async", "`delay=timedelta(…)`"),
        ("s", "`app.schedule(…).then_include(twice, external_id, value)`"),
        ("retry", "`RetryAfter(timedelta(minutes=2))`"),
        ("schedule", "`app.schedule(twice, external_id, value, every(minutes=5))`"),
        ("opions", "did you mean 'options'?"),
    ],
)
def test_an_unknown_attribute_of_a_train_names_the_alternative(attribute: str, verb: str) -> None:
    twice = train("twice", double)

    with pytest.raises(AttributeError) as refused:
        getattr(twice, attribute)

    assert str(refused.value).startswith(f"a train has no attribute {attribute!r}; ")
    assert verb in str(refused.value)


def test_a_train_is_copied_and_has_no_other_attributes() -> None:
    twice = train("twice", double)

    assert copy.copy(twice).name == "twice"
    assert not hasattr(twice, "__wrapped__")


def test_trains_cannot_be_joined_to_a_route() -> None:
    twice: Any = train("twice", double)

    for first, second in ((twice, double), (double, twice), (twice, twice)):
        with pytest.raises(
            DefinitionError, match=r"<train twice: double> cannot be part of a route.*@junction"
        ):
            _ = first >> second


def redefine() -> Any:
    return train_of(train("twice", double))


def define_by_name() -> Any:
    wrong: Any = "twice"
    return train_of(wrong)


def define_from_a_function() -> Any:
    wrong: Any = abs
    return train("twice", wrong)


def define_with(options: Any) -> Any:
    return train("twice", double, **options)


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (redefine, "<train twice: double> is a train already"),
        (define_by_name, "train 'twice' has a name, but no route"),
        (define_from_a_function, "one function decorated with @junction"),
        (lambda: define_with({"retries": 3}), "option 'retries'; did you mean 'max_retries'"),
        (lambda: define_with({"retry": 3}), "train 'twice': retry must be a Retry (got 3)"),
        (lambda: define_with({"aliases": ["a b"]}), "train 'twice': an alias must not contain spaces"),
    ],
)  # fmt: skip
def test_a_wrong_definition_names_the_train_and_what_to_do(define: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(message)):
        define()
