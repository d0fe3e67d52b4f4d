"""Two values of one type in one junction: refused where it is defined, since both would be the same value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from trax.errors import DefinitionError, RouteError
from trax.train import Services, junction, train, train_of


@dataclass
class Mail:
    to: str
    subject: str


def two_texts(to: str, subject: str) -> None: ...


def two_texts_and_a_default(to: str, subject: str = "Hello") -> None: ...


def text_and_perhaps_text(to: str, subject: str | None) -> None: ...


def perhaps_text_and_text(to: str | None, subject: str) -> None: ...


def two_lists(to: list[str], subject: list[str]) -> None: ...


def two_keyword_texts(number: int, *, to: str, subject: str) -> None: ...


class TextsInTheConstructor:
    def __init__(self, to: str, subject: str) -> None: ...

    def __call__(self, number: int) -> None: ...


class TextsInTheCall:
    def __call__(self, to: str, subject: str) -> None: ...


@pytest.mark.parametrize(
    "function",
    [
        two_texts,
        two_texts_and_a_default,
        text_and_perhaps_text,
        perhaps_text_and_text,
        two_lists,
        two_keyword_texts,
        TextsInTheConstructor,
        TextsInTheCall,
    ],
)
def test_two_parameters_of_one_type_are_refused_with_both_ways_out(function: Any) -> None:
    with pytest.raises(DefinitionError) as refused:
        train_of(function)

    message = str(refused.value)
    assert message.startswith(f"junction {function.__name__!r}: parameters 'to' and 'subject' are both ")
    assert "would both get the same value" in message
    assert "put them into one model" in message
    assert "such as Annotated[str, 'subject']" in message


async def test_annotated_keeps_two_texts_of_earlier_junctions_apart() -> None:
    @junction
    async def address(customer: int) -> Annotated[str, "to"]:
        return f"{customer}@example.com"

    @junction
    async def title(_customer: int) -> Annotated[str, "subject"]:
        return "Your order"

    @junction
    async def send(to: Annotated[str, "to"], subject: Annotated[str, "subject"]) -> str:
        return f"{to}: {subject}"

    assert await train("send", address >> title >> send).run(7) == "7@example.com: Your order"


async def test_one_model_carries_two_texts() -> None:
    async def send(mail: Mail) -> str:
        return f"{mail.to}: {mail.subject}"

    assert await train_of(send).run(Mail("ada", "Hello")) == "ada: Hello"


@pytest.mark.parametrize(
    ("declared", "repeated"),
    [
        (tuple[float, float], "float"),
        (tuple[str, int, str], "str"),
        (tuple[str, str | None], "str"),
        (tuple[str, tuple[int, int]], "int"),
    ],
)
def test_a_tuple_with_two_elements_of_one_type_is_refused_as_input_and_as_result(
    declared: Any, repeated: str
) -> None:
    def take(value: Any) -> None: ...

    def give(number: int) -> None: ...

    take.__annotations__["value"] = declared
    give.__annotations__["return"] = declared

    with pytest.raises(DefinitionError, match=rf"'take': parameter 'value'.* has more than one {repeated}"):
        train_of(take)
    with pytest.raises(DefinitionError, match=rf"'give': its result.* has more than one {repeated}"):
        train_of(give)


def test_a_tuple_with_two_elements_of_one_type_is_refused_as_the_declared_input_of_a_train() -> None:
    @junction
    async def add(number: float) -> float:
        raise NotImplementedError

    with pytest.raises(DefinitionError, match=r"train 'add': its input: .* has more than one float"):
        train("add", add, input=tuple[float, float])


async def test_a_distinct_tuple_and_one_of_any_length_stay_one_value() -> None:
    async def span(size: Annotated[tuple[float, float], "size"]) -> float:
        return size[1] - size[0]

    async def total(numbers: tuple[float, ...]) -> float:
        return sum(numbers)

    assert await train_of(span).run((1.0, 4.0)) == 3.0
    assert await train_of(total).run((1.0, 4.0)) == 5.0


def test_a_second_parameter_of_the_first_junction_is_refused_and_a_model_suggested() -> None:
    async def send(to: str, copies: int) -> None:
        raise NotImplementedError

    with pytest.raises(
        RouteError, match="a train has one input, here str: put several values into one model"
    ):
        train_of(send)


async def test_a_factory_with_two_parameters_of_one_type_is_refused() -> None:
    class Client: ...

    def connect(host: str, user: str) -> Client:
        raise NotImplementedError

    async def use(number: int, client: Client) -> None:
        raise NotImplementedError

    services = Services()
    services.provide(str, "one text")
    services.provide(Client, connect)

    with pytest.raises(DefinitionError, match="parameters 'host' and 'user' are both str"):
        await train_of(use, services=services).run(1)
