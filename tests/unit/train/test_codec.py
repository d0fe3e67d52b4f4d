from __future__ import annotations

import dataclasses
import math
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Generic, TypeVar
from uuid import UUID

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    computed_field,
    field_serializer,
)
from typing_extensions import TypedDict  # pydantic wants this one below 3.12

from trax.errors import DefinitionError, InvalidInput
from trax.train import Codec

T = TypeVar("T")

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.builds(object),
    lambda below: (
        st.lists(below) | st.dictionaries(st.text() | st.integers(), below) | st.tuples(below, below)
    ),
    max_leaves=10,
)


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Item(BaseModel):
    name: str
    price: float | None = None


class Hello(BaseModel):
    name: str
    at: datetime
    items: list[Item] = []
    colour: Colour = Colour.RED


class Plain(BaseModel):
    number: int
    text: str | None = None


class Louder(Plain):
    volume: int = 11


@dataclass
class Job:
    table: str
    limit: int = 10
    ratio: float | None = None
    tags: list[str] = dataclasses.field(default_factory=list[str])


@pydantic.dataclasses.dataclass
class Checked:
    number: int


class Movie(TypedDict):
    title: str
    year: int


def codec(declared: Any) -> Codec[Any]:
    return Codec(declared, owner="train 'greet'")


def refused(declared: Any, value: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        codec(declared).encode(value)
    return caught.value


@pytest.mark.parametrize(
    ("declared", "value", "text"),
    [
        (Plain, Plain(number=1), '{"number":1,"text":null}'),
        (Job, Job("users"), '{"table":"users","limit":10,"ratio":null,"tags":[]}'),
        (Checked, Checked(3), '{"number":3}'),
        (Movie, Movie(title="Trax", year=2027), '{"title":"Trax","year":2027}'),
        (int, 3, "3"),
        (str, "äöü 🚂", '"äöü 🚂"'),
        (None, None, "null"),
        (Plain | None, None, "null"),
        (Plain | None, Plain(number=1), '{"number":1,"text":null}'),
        (list[Plain], [Plain(number=1)], '[{"number":1,"text":null}]'),
        (tuple[int, str], (1, "a"), '[1,"a"]'),
        (dict[str, int], {"a": 1}, '{"a":1}'),
        (datetime, datetime(2027, 1, 1, tzinfo=UTC), '"2027-01-01T00:00:00Z"'),
        (UUID, UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Decimal, Decimal("1.10"), '"1.10"'),
        (Colour, Colour.BLUE, '"blue"'),
        (float, 3, "3.0"),
        (bytes, b"abc", '"abc"'),
    ],
)
def test_a_value_is_written_and_read_back(declared: Any, value: Any, text: str) -> None:
    assert codec(declared).encode(value) == text
    assert codec(declared).decode(text) == value
    assert codec(declared).decode(text.encode()) == value


def test_fields_are_named_as_in_python() -> None:
    class Aliased(BaseModel):
        full_name: str = Field(alias="fullName")
        age: int = Field(validation_alias=AliasChoices("years", "Age"), serialization_alias="AGE")

    one = Aliased(fullName="Ada", years=36)  # pyright: ignore[reportCallIssue]

    assert codec(Aliased).encode(one) == '{"full_name":"Ada","age":36}'
    assert codec(Aliased).decode('{"full_name":"Ada","age":36}') == one
    assert codec(Aliased).encode({"full_name": "Ada", "age": 36}) == '{"full_name":"Ada","age":36}'
    assert [each.path for each in refused(Aliased, {"full_name": 3}).errors] == ["full_name", "age"]


def test_a_mapping_is_accepted_for_a_model_or_a_dataclass_and_normalised() -> None:
    assert codec(Plain).encode({"number": "3"}) == '{"number":3,"text":null}'
    assert codec(Job).encode({"table": "users"}) == Codec(Job, owner="it").encode(Job("users"))


def test_every_bad_field_is_named_with_its_path_and_value() -> None:
    error = refused(Hello, {"name": 3, "at": "never", "items": [{"name": "ok"}, {"name": None}]})

    assert [(each.path, each.value) for each in error.errors] == [
        ("name", 3),
        ("at", "never"),
        ("items.1.name", None),
    ]
    assert str(error).startswith(
        "train 'greet': invalid input: name: Input should be a valid string (got 3); at: "
    )


def test_an_output_is_named_as_such() -> None:
    with pytest.raises(InvalidInput, match="train 'greet': invalid output: the value itself"):
        Codec(int, owner="train 'greet'", role="output").encode("3")  # pyright: ignore[reportArgumentType]


def test_a_dataclass_is_checked_since_its_constructor_does_not() -> None:
    error = refused(Job, Job(table=3, limit="many"))  # pyright: ignore[reportArgumentType]

    assert [(each.path, each.value) for each in error.errors] == [("table", 3), ("limit", "many")]


def test_a_dataclass_with_a_value_that_can_be_read_as_its_type_is_normalised() -> None:
    assert '"limit":5' in codec(Job).encode(Job("users", limit="5"))  # pyright: ignore[reportArgumentType]


def test_a_model_that_was_changed_or_put_together_by_hand_is_checked_after_all() -> None:
    changed = Plain(number=1)
    changed.number = "many"  # pyright: ignore[reportAttributeAccessIssue]

    assert [each.path for each in refused(Plain, changed).errors] == ["number"]
    assert [each.path for each in refused(Plain, Plain.model_construct(text="x")).errors] == ["number"]
    assert codec(Plain).encode(Plain.model_construct(number=2, text=None)) == '{"number":2,"text":null}'


@pytest.mark.parametrize(
    "values",
    [
        [],
        [Plain(number=1), Plain(number=2, text="x")],
        [Plain(number=1), {"number": 2}],
        [Job("users"), Job("orders", ratio=0.5)],
        [Checked(3), Checked(4)],
        [Item(name="x", price=1.5), Item(name="null", price=2)],
    ],
)
def test_many_values_are_written_as_each_alone(values: list[Any]) -> None:
    of_type = codec(type(values[0]) if values else Plain)

    assert of_type.encode_all(values) == [of_type.encode(value) for value in values]


def test_one_bad_value_among_many_is_refused_as_if_it_were_alone() -> None:
    changed = Plain(number=1)
    changed.number = "many"  # pyright: ignore[reportAttributeAccessIssue]

    for declared, bad in [
        (Plain, changed),
        (Plain, Plain.model_construct(text="x")),
        (Plain, Louder(number=1)),
        (Item, Item(name="x", price=math.nan)),
    ]:
        good = Plain(number=1) if declared is Plain else Item(name="x", price=1)
        with pytest.raises(InvalidInput) as raised:
            codec(declared).encode_all([good, bad, good])
        assert raised.value.errors == refused(declared, bad).errors


def test_a_subclass_is_refused_since_its_own_fields_would_be_lost() -> None:
    assert "expected Plain itself, got its subclass Louder" in str(refused(Plain, Louder(number=1)))


@pytest.mark.parametrize(("declared", "value"), [(Plain, Item(name="x")), (Plain, 3), (Job, Plain(number=1))])
def test_another_type_is_refused_naming_both(declared: type, value: object) -> None:
    message = str(refused(declared, value))

    assert f"expected {declared.__name__} or a mapping of its fields, got {type(value).__name__}" in message


@pytest.mark.parametrize(("declared", "value"), [(int, "3"), (str, 3), (list[int], (1, 2)), (bool, 1)])
def test_a_plain_type_refuses_values_that_a_type_checker_refuses(declared: Any, value: Any) -> None:
    refused(declared, value)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_refused_wherever_it_hides(number: float) -> None:
    class Config(BaseModel):
        default: float | None
        kept: dict[str, Any] = {}

    class Constants(BaseModel):
        model_config = ConfigDict(ser_json_inf_nan="constants")

        number: float

    assert [each.path for each in refused(Item, Item(name="x", price=number)).errors] == ["price"]
    assert [each.path for each in refused(Item, {"name": "x", "price": number}).errors] == ["price"]
    assert [each.path for each in refused(Job, Job("x", ratio=number)).errors] == ["ratio"]
    assert [each.path for each in refused(Config, Config(default=number)).errors] == ["default"]
    assert [each.path for each in refused(Config, Config(default=1, kept={"a": [number]})).errors] == [
        "kept.a.0"
    ]
    assert [each.path for each in refused(Constants, Constants(number=number)).errors] == ["number"]
    assert [each.path for each in refused(list[float], [1.0, number]).errors] == ["1"]
    assert [each.path for each in refused(float, number).errors] == [""]


@pytest.mark.parametrize(
    ("declared", "value", "path"),
    [
        (Plain, Plain(number=1, text="\ud800"), "text"),
        (Job, Job("\ud800"), "table"),
        (Movie, {"title": "\ud800", "year": 1}, "title"),
        (str, "\ud800", ""),
        (list[str], ["ok", "\udfff"], "1"),
        (dict[str, int], {"\ud800": 1}, ""),
    ],
)
def test_a_lone_surrogate_is_refused(declared: Any, value: Any, path: str) -> None:
    assert path in refused(declared, value).errors[0].path


def test_bytes_that_are_no_text_are_refused() -> None:
    class Blob(BaseModel):
        data: bytes

    refused(Blob, Blob(data=b"\xff"))
    refused(bytes, b"\xff")


@pytest.mark.parametrize("text", ["", "{", '{"number": "x"}', "[]", b"\xff", '"\ud800"', "[" * 500])
def test_text_that_cannot_be_read_is_refused(text: str | bytes) -> None:
    with pytest.raises(InvalidInput, match="train 'greet': invalid input"):
        codec(Plain).decode(text)


def test_a_type_with_different_written_and_read_forms_is_refused_at_once() -> None:
    class German(BaseModel):
        at: datetime

        @field_serializer("at")
        def _written(self, at: datetime) -> str:
            return at.strftime("%d.%m.%Y")

    class Hidden(BaseModel):
        secret: str = Field(exclude=True)

    assert [each.path for each in refused(German, German(at=datetime(2027, 1, 2, tzinfo=UTC))).errors] == [
        "at"
    ]
    assert [each.path for each in refused(Hidden, Hidden(secret="x")).errors] == ["secret"]


def test_computed_fields_are_not_written() -> None:
    class Square(BaseModel):
        model_config = ConfigDict(extra="forbid")

        side: int

        @computed_field
        @property
        def area(self) -> int:
            return self.side**2

    assert codec(Square).decode(codec(Square).encode(Square(side=2))) == Square(side=2)


def test_models_of_one_value_and_generic_ones_work() -> None:
    class Numbers(RootModel[list[int]]): ...

    class Box(BaseModel, Generic[T]):
        content: T

    @dataclass
    class Pair(Generic[T]):
        left: T

    assert codec(Numbers).encode(Numbers([1, 2])) == "[1,2]"
    assert codec(Box[int]).encode(Box[int](content=1)) == '{"content":1}'
    assert codec(Pair[int]).decode(codec(Pair[int]).encode(Pair(1))) == Pair(1)
    assert [each.path for each in refused(Pair[int], Pair("x")).errors] == ["left"]


def test_constraints_in_annotations_hold() -> None:
    def even(number: int) -> int:
        if number % 2:
            raise ValueError("must be even")
        return number

    declared = Annotated[int, AfterValidator(even)]

    assert codec(declared).encode(2) == "2"
    assert "must be even" in str(refused(declared, 3))


@pytest.mark.parametrize(
    "declared", [object(), type("Custom", (), {}), "Unknown", dict[str, type("X", (), {})]]
)
def test_a_type_that_cannot_be_json_is_refused_when_the_codec_is_made(declared: Any) -> None:
    with pytest.raises(DefinitionError, match=r"the input of train 'greet' is .*, which cannot be JSON"):
        codec(declared)


@given(st.builds(Plain, number=st.integers(), text=st.none() | TEXT))
def test_models_come_back_as_they_were(value: Plain) -> None:
    assert PLAIN.decode(PLAIN.encode(value)) == value


@given(st.builds(Job, table=TEXT, limit=st.integers(), ratio=st.none() | NUMBERS, tags=st.lists(TEXT)))
def test_dataclasses_come_back_as_they_were(value: Job) -> None:
    assert JOB.decode(JOB.encode(value)) == value


@given(st.fixed_dictionaries({"title": TEXT, "year": st.integers()}))
def test_typed_dictionaries_come_back_as_they_were(value: Any) -> None:
    assert MOVIE.decode(MOVIE.encode(value)) == value


@given(st.dictionaries(TEXT, st.lists(st.integers() | NUMBERS | TEXT | st.booleans() | st.none())))
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    assert VALUES.decode(VALUES.encode(value)) == value


@given(ANYTHING)
def test_nothing_but_invalid_input_is_raised_for_a_wrong_value(value: Any) -> None:
    for each in (PLAIN, JOB, MOVIE, VALUES, ITEM):
        with suppress(InvalidInput):
            each.decode(each.encode(value))


@given(TEXT | st.binary())
def test_nothing_but_invalid_input_is_raised_for_wrong_text(text: str | bytes) -> None:
    for each in (PLAIN, JOB, MOVIE, VALUES, ITEM):
        with suppress(InvalidInput):
            each.decode(text)


@given(ANYTHING)
def test_encoded_values_can_be_decoded(value: Any) -> None:
    for each in (ANY, FLEXIBLE):
        try:
            text = each.encode(value)
        except InvalidInput:
            continue
        assert each.encode(each.decode(text)) == text


PLAIN: Codec[Plain] = Codec(Plain, owner="train 'plain'")
JOB: Codec[Job] = Codec(Job, owner="train 'job'")
MOVIE: Codec[Movie] = Codec(Movie, owner="train 'movie'")
ITEM: Codec[Item] = Codec(Item, owner="train 'item'")
VALUES = codec(dict[str, list[int | float | str | bool | None]])
ANY = codec(Any)
FLEXIBLE = codec(dict[str, Any] | list[Any] | str | int | float | None)
