from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import IntEnum, StrEnum
from typing import (  # noqa: UP035
    Annotated,
    Any,
    Generic,
    List,
    Literal,
    NamedTuple,
    NewType,
    Protocol,
    TypedDict,
    TypeVar,
    cast,
)

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypeAliasType

from trax.errors import DefinitionError, RouteError, WiringError
from trax.train import Cancellation, Junction, junction, train, wired
from trax.train.annotations import name_of
from trax.train.memory import (
    MISSING,
    Memory,
    key_of,
    matches,
    recall,
    request_for,
    runtime_keys,
    static_keys,
    writer,
)

T = TypeVar("T")
Source = Annotated[str, "source"]
Target = Annotated[str, "target"]
UserId = NewType("UserId", int)
Name = Annotated[str, Field(min_length=1)]
Numbers = TypeAliasType("Numbers", list[int])
Odd = Annotated[str, ["not", "hashable"]]


class Animal: ...


class Dog(Animal): ...


class Box(Generic[T]): ...


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Point(NamedTuple):
    x: int
    y: int


class Movie(TypedDict):
    title: str


class Model(BaseModel):
    number: int


def stored(declared: Any, value: Any) -> Memory:
    memory: Memory = {}
    writer(declared, "junction 'test'")(memory, value)
    return memory


def test_a_value_is_found_under_its_type_and_every_base() -> None:
    dog = Dog()

    assert stored(Animal, dog) == {Dog: dog, Animal: dog}


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (True, {bool}),
        (datetime(2027, 1, 1, tzinfo=UTC), {datetime}),
        (date(2027, 1, 1), {date}),
        (3, {int}),
    ],
)
def test_a_value_is_not_found_under_a_plain_type_it_merely_inherits_from(value: Any, kept: set[type]) -> None:
    assert set(stored(type(value), value)) == kept


def test_an_enum_is_neither_text_nor_number() -> None:
    assert str not in stored(Colour, Colour.RED)
    assert int not in stored(Level, Level.LOW)


def test_a_result_is_found_under_its_declared_type_even_if_that_is_a_plain_one() -> None:
    assert stored(int, True) == {int: True, bool: True}


def test_a_generic_alias_is_a_key_of_its_own_beside_the_runtime_type() -> None:
    numbers = [1]

    memory = stored(list[int], numbers)

    assert memory == {key_of(list[int]): numbers, list: numbers}
    assert recall(memory, request_for(List[int])) is numbers  # noqa: UP006
    assert recall(memory, request_for(list[str])) is MISSING


def test_a_union_is_a_key_of_its_own_beside_the_runtime_type() -> None:
    dog = Dog()

    memory = stored(Dog | Model, dog)

    assert recall(memory, request_for(Model | Dog)) is dog
    assert recall(memory, request_for(Dog)) is dog


def test_a_request_for_alternatives_is_satisfied_by_any_of_them() -> None:
    memory = stored(Dog, dog := Dog())

    assert recall(memory, request_for(Model | Dog | None)) is dog
    assert recall(memory, request_for(Model | None)) is MISSING


def test_a_declared_none_is_remembered_under_the_declared_union_only() -> None:
    memory = stored(Dog | None, None)

    assert recall(memory, request_for(Dog | None)) is None
    assert recall(memory, request_for(Dog)) is MISSING


def test_annotated_and_new_types_keep_values_of_one_type_apart() -> None:
    memory = stored(tuple[Source, Target, UserId], ("here", "there", 7))

    assert recall(memory, request_for(Source)) == "here"
    assert recall(memory, request_for(Target)) == "there"
    assert recall(memory, request_for(UserId)) == 7
    assert str not in memory
    assert int not in memory


@pytest.mark.parametrize("declared", [Name, Odd, Annotated[str, {"a": [1]}]])
def test_metadata_need_not_be_hashable(declared: Any) -> None:
    assert recall(stored(declared, "Ada"), request_for(declared)) == "Ada"


def test_metadata_written_twice_means_the_same() -> None:
    memory = stored(Annotated[str, Field(min_length=1)], "Ada")

    assert recall(memory, request_for(Annotated[str, Field(min_length=1)])) == "Ada"
    assert recall(memory, request_for(Annotated[str, Field(min_length=2)])) is MISSING


def test_a_variadic_tuple_and_a_named_tuple_are_values() -> None:
    numbers, point = (1, 2, 3), Point(1, 2)

    assert recall(stored(tuple[int, ...], numbers), request_for(tuple[int, ...])) is numbers
    assert stored(Point, point) == {Point: point}


def test_nested_tuples_are_split_and_rebuilt_all_the_way_down() -> None:
    dog, model = Dog(), Model(number=1)

    memory = stored(tuple[Dog, tuple[Model, UserId]], (dog, (model, 3)))

    assert recall(memory, request_for(tuple[tuple[UserId, Model], Animal])) == ((3, model), dog)


def test_a_tuple_of_another_length_than_declared_is_refused() -> None:
    with pytest.raises(WiringError, match=r"declares tuple\[Dog, Model\], but the value has 3 elements"):
        stored(tuple[Dog, Model], (Dog(), Model(number=1), 3))


def test_a_declared_tuple_refuses_other_values() -> None:
    with pytest.raises(WiringError, match="declares a tuple, but the value is 3"):
        stored(tuple[Dog, Model], 3)


def test_a_part_that_is_none_is_refused_unless_it_may_be() -> None:
    dog = Dog()

    assert recall(stored(tuple[Dog, Model | None], (dog, None)), request_for(Model | None)) is None
    with pytest.raises(WiringError, match="declares Model, but the value is None"):
        stored(tuple[Dog, Model], (dog, None))


def test_values_that_cannot_be_compared_travel_in_tuples() -> None:
    class Array:
        def __eq__(self, other: object) -> bool:
            raise TypeError("ambiguous")

        __hash__ = None  # pyright: ignore[reportAssignmentType]

    memory = stored(tuple[Array, Dog], (array := Array(), dog := Dog()))

    rebuilt = recall(memory, request_for(tuple[Dog, Array]))
    assert rebuilt[0] is dog
    assert rebuilt[1] is array


def test_a_dictionary_with_declared_keys_travels_under_its_declaration() -> None:
    movie = Movie(title="Trax")

    assert recall(stored(Movie, movie), request_for(Movie)) is movie


def test_an_alias_means_what_it_stands_for() -> None:
    assert key_of(Numbers) == key_of(list[int])
    assert name_of(Numbers) == "list[int]"


@pytest.mark.parametrize(
    ("declared", "name"),
    [
        (Dog | None, "Dog | None"),
        (dict[str, list[Dog]], "dict[str, list[Dog]]"),
        (tuple[int, ...], "tuple[int, ...]"),
        (Source, "Annotated[str, 'source']"),
        (UserId, "UserId"),
        (None, "None"),
        (Any, "Any"),
        (Literal["a", 1], "Literal['a', 1]"),
    ],
)
def test_a_type_is_named_as_a_person_would_write_it(declared: Any, name: str) -> None:
    assert name_of(declared) == name


def test_a_declared_interface_promises_no_more_than_itself() -> None:
    assert static_keys(Sequence[int]) == {key_of(Sequence[int])}
    assert static_keys(list[int]) == {key_of(list[int]), list}
    assert static_keys(Box[int]) == {key_of(Box[int]), Box}


class Speaks(Protocol):
    name: str

    def speak(self) -> str: ...


@dataclass
class Parrot:
    name: str

    def speak(self) -> str:
        return f"{self.name} speaks"


@dataclass
class Stone:
    name: str


def test_a_value_is_found_under_a_wired_protocol_it_satisfies() -> None:
    parrot = Parrot("Polly")
    assert Speaks not in stored(Parrot, parrot)

    assert wired(Speaks) is Speaks

    assert stored(Parrot, parrot)[Speaks] is parrot
    assert Speaks not in runtime_keys(Stone)
    assert isinstance(parrot, cast("Any", Speaks))


async def test_a_junction_may_ask_for_a_wired_protocol() -> None:
    @wired
    class Named(Protocol[T]):  # pyright: ignore[reportInvalidTypeVarUse]
        name: str

    @junction
    async def greet(named: Named[Any]) -> str:
        return named.name

    @junction
    async def shout(named: Named) -> str:  # pyright: ignore[reportMissingTypeArgument, reportUnknownParameterType]
        return named.name.upper()

    shouted = train("shout", cast("Junction[Any, str]", shout), input=Stone)

    with pytest.raises(RouteError, match=r"Named\[Any\]"):
        train("greet", greet, input=Stone)
    assert await shouted.run(Stone("rock")) == "ROCK"


def test_only_protocols_are_wired() -> None:
    with pytest.raises(DefinitionError, match="not a Protocol"):
        wired(Dog)


async def test_a_logger_is_named_like_the_train() -> None:
    @junction
    async def log(number: int, logger: logging.Logger) -> str:
        logger.debug("got %s", number)
        return logger.name

    assert await train("chatty", log).run(1) == "chatty"


async def test_a_logger_in_memory_comes_before_the_built_in_one() -> None:
    mine = logging.getLogger("mine")

    @junction
    async def log(number: int, logger: logging.Logger) -> str:
        return f"{logger.name} {number}"

    assert await train("chatty", log).run(1, extra={logging.Logger: mine}) == "mine 1"


async def test_a_junction_may_ask_for_the_token_of_its_run() -> None:
    token = Cancellation()

    @junction
    async def ask(number: int, cancellation: Cancellation) -> bool:
        return cancellation is token and number == 1

    assert await train("ask", ask).run(1, cancellation=token)


@pytest.mark.parametrize(
    ("value", "declared", "is_one"),
    [
        (1, int, True),
        (True, int, False),
        ("a", int | str, True),
        ((1, "a"), tuple[int, str], True),
        ((1, 2), tuple[int, str], False),
        ([1], list[str], True),
        ({"title": "x"}, Movie, True),
        ("x", Source, True),
        (3, UserId, True),
        (3, Any, True),
        (Stone("x"), Speaks, False),
        (Parrot("x"), Speaks, True),
    ],
)
def test_instances_of_declared_types_are_recognized(value: Any, declared: Any, is_one: bool) -> None:
    assert matches(value, declared) is is_one
