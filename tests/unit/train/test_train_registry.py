from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from trax.errors import DefinitionError, UnknownTrain
from trax.train import Registry, Retry, Train, TrainOptions, junction, train


@junction
async def greet(name: str) -> str:
    return f"hello {name}"


def named(name: str, *aliases: str) -> Train[str, str]:
    return train(name, greet, aliases=aliases)


def test_a_train_is_found_under_its_name_and_its_aliases() -> None:
    registry, one = Registry(), named("greet", "greeting", "welcome")

    registry.add(one)

    assert registry.get("greet") is registry.get("welcome") is one
    assert registry.names == ["greet"]
    assert list(registry) == [one]
    assert len(registry) == 1
    assert "greeting" in registry
    assert "other" not in registry


def test_an_unknown_name_comes_with_a_suggestion() -> None:
    registry = Registry()
    registry.add(named("sync_table"))

    with pytest.raises(UnknownTrain, match="'sync_tabel'; did you mean 'sync_table'"):
        registry.get("sync_tabel")


@pytest.mark.parametrize(("first", "second"), [("a", ("a",)), ("a", ("b", "a")), ("a", ("b", "c", "old"))])
def test_a_duplicate_name_is_refused_with_both_trains_and_adds_neither(
    first: str, second: tuple[str, ...]
) -> None:
    registry = Registry()
    registry.add(named(first, "old"))

    with pytest.raises(DefinitionError, match=f"twice: by train 'a' .* and by train '{second[0]}' "):
        registry.add(named(*second))
    assert registry.names == ["a"]
    assert "b" not in registry


@pytest.mark.parametrize("name", ["", "two words", "tab\t", "line\n", "nul\0", "x" * 201, 3])
def test_a_name_that_cannot_be_shown_is_refused(name: Any) -> None:
    with pytest.raises(DefinitionError, match="a train's name"):
        named(name)


def test_names_of_our_own_are_reserved() -> None:
    registry = Registry()

    with pytest.raises(DefinitionError, match="are reserved"):
        registry.add(named("trax.mine"))
    registry.add(named("trax.ours"), internal=True)

    assert registry.names == ["trax.ours"]


@pytest.mark.parametrize(
    "options",
    [
        {"priority": -1},
        {"priority": 32},
        {"priority": True},
        {"max_retries": -1},
        {"max_retries": 1.5},
        {"timeout": timedelta()},
        {"timeout": 10},
        {"aliases": "text"},
        {"aliases": ["two words"]},
        {"aliases": [3]},
        {"group": ""},
        {"submitter": 3},
        {"retry": 3},
        {"on_started": "no function"},
    ],
)
def test_an_option_that_cannot_work_is_refused_where_it_is_made(options: dict[str, Any]) -> None:
    (name,) = options
    expected = "an alias" if "two words" in str(options) or options == {"aliases": [3]} else name

    with pytest.raises(DefinitionError, match=expected):
        train("greet", greet, **options)


@pytest.mark.parametrize(
    "values",
    [
        {"max_retries": -1},
        {"max_retries": True},
        {"delay": timedelta(seconds=-1)},
        {"delay": 5},
        {"multiplier": 0.5},
        {"max_delay": None},
        {"jitter": 1.5},
        {"give_up_on": ValueError},
        {"give_up_on": (3,)},
    ],
)
def test_a_retry_that_cannot_work_is_refused_where_it_is_made(values: dict[str, Any]) -> None:
    (name,) = values

    with pytest.raises(DefinitionError, match=f"Retry.{name} must be"):
        Retry(**values)


def test_options_have_the_defaults_of_the_manual() -> None:
    assert Retry() == Retry(3, timedelta(minutes=5), 2.0, timedelta(hours=1), 0.0, ())
    assert train("greet", greet).options == TrainOptions()
    assert train("greet", greet, aliases=["old"]).options.aliases == ("old",)


def test_max_retries_has_the_last_word_over_retry() -> None:
    default, own = Retry(max_retries=3), Retry(max_retries=1, delay=timedelta(seconds=1))

    assert TrainOptions().retry_policy(default) is default
    assert TrainOptions(retry=own).retry_policy(default) is own
    assert TrainOptions(retry=own, max_retries=7).retry_policy(default) == Retry(7, timedelta(seconds=1))
    assert TrainOptions(max_retries=0).retry_policy(default) == Retry(max_retries=0)


def test_a_train_shows_what_it_is() -> None:
    one = named("greet")

    assert repr(one) == "<train greet: greet>"
    assert (one.input_type, one.output_type, one.is_sync) == (str, str, False)
    with pytest.raises(AttributeError):
        one.name = "other"  # pyright: ignore[reportAttributeAccessIssue]
