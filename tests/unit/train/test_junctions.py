from __future__ import annotations

import functools
import gc
import inspect
import weakref
from collections.abc import AsyncGenerator, Awaitable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest

from trax.errors import DefinitionError, RouteError
from trax.train import Services, junction, train, train_of

if TYPE_CHECKING:
    from decimal import Decimal  # noqa: TC004 - this mistake is what is tested


@dataclass
class Order:
    number: int


@dataclass
class Client:
    name: str


@junction
def double(order: Order) -> Later:
    """Twice the number."""
    return Later(order.number * 2)


@dataclass
class Later:
    number: int


class Load:
    made = 0

    def __init__(self, client: Client, order: Order, tries: int = 3) -> None:
        Load.made += 1
        self.text = f"{client.name} {order.number} {tries}"

    async def __call__(self, later: Later) -> str:
        return f"{self.text} {later.number}"


def test_a_junction_keeps_the_name_and_the_words_of_its_function() -> None:
    assert double.name == "double"
    assert cast("Any", double).__doc__ == "Twice the number."
    assert repr(double) == "<junction double>"
    assert list(inspect.signature(double).parameters) == ["order"]


def test_a_junction_is_called_like_its_function() -> None:
    assert double(Order(2)) == Later(4)


def test_a_name_may_be_defined_below_the_junction_that_uses_it() -> None:
    assert train("double", double).run_blocking(Order(2)) == Later(4)


def test_names_local_to_a_function_are_known() -> None:
    @dataclass
    class Local:
        number: int

    def outer() -> str:
        @junction
        def inner(local: Local, order: Inner) -> str:
            return f"{local.number} {order.number}"

        @junction
        def make(local: Local) -> Inner:
            return Inner(local.number + 1)

        @dataclass
        class Inner:
            number: int

        return train("inner", make >> inner).run_blocking(Local(1))

    assert outer() == "1 2"


def test_the_frames_around_a_junction_are_released_after_its_annotations_are_read() -> None:
    class Heavy: ...

    def define() -> tuple[Any, weakref.ref[Heavy]]:
        heavy = Heavy()

        @dataclass
        class Local:
            number: int

        @junction
        def read(local: Local) -> int:
            return local.number

        return train("read", read), weakref.ref(heavy)

    whole, heavy = define()
    gc.collect()

    assert whole.name == "read"
    assert heavy() is None


async def test_a_class_is_made_from_memory_first_and_then_from_services() -> None:
    services = Services()
    services.provide(Client, lambda: Client("service"))
    services.provide(Order, lambda: Order(99))

    whole = train("load", double >> junction(Load), services=services)

    assert await whole.run(Order(1)) == "service 1 3 2"


async def test_a_class_is_not_made_when_the_route_failed_before_it() -> None:
    @junction
    def fail(order: Order) -> Later:
        raise ValueError(order)

    Load.made = 0
    whole = train("load", fail >> junction(Load), extra=(Client,))

    with pytest.raises(ValueError, match="Order"):
        await whole.run(Order(1), extra={Client: Client("extra")})
    assert Load.made == 0


async def test_a_decorated_class_can_be_made_and_called_in_a_test() -> None:
    @junction
    class Greet:
        def __init__(self, client: Client) -> None:
            self.client = client

        def __call__(self, order: Order) -> str:
            return f"{self.client.name} {order.number}"

    assert Greet(Client("Ada"))(Order(1)) == "Ada 1"
    whole = train("greet", Greet, extra=(Client,))
    assert await whole.run(Order(1), extra={Client: Client("Ada")}) == "Ada 1"


async def test_an_object_that_can_be_called_is_used_as_it_is() -> None:
    class Adder:
        def __init__(self, amount: int) -> None:
            self.amount = amount

        async def __call__(self, order: Order) -> int:
            return order.number + self.amount

    add = junction(Adder(10))

    assert add.name == "Adder"
    assert await train("add", add).run(Order(1)) == 11


async def test_a_method_is_a_junction_too() -> None:
    class Shop:
        def bill(self, order: Order) -> str:
            return f"bill {order.number}"

    assert await train("bill", junction(Shop().bill)).run(Order(1)) == "bill 1"


async def test_a_decorated_function_is_read_through_its_wrapper() -> None:
    def logged(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @junction
    @logged
    def count(order: Order) -> int:
        return order.number

    assert await train("count", cast("Any", count)).run(Order(4)) == 4


async def test_a_function_that_returns_an_awaitable_is_awaited() -> None:
    async def later(order: Order) -> int:
        return order.number

    @junction
    def start(order: Order) -> Awaitable[int]:
        return later(order)

    whole = train("start", start)

    assert not whole.is_sync
    assert await whole.run(Order(4)) == 4


async def test_keywords_and_defaults_are_wired_too() -> None:
    @junction
    async def combine(order: Order, client: Client | None = None, *, later: Later, tries: int = 3) -> str:
        return f"{order.number} {client} {later.number} {tries}"

    assert await train("combine", double >> combine).run(Order(1)) == "1 None 2 3"


async def test_a_parameter_with_a_default_gets_an_available_value() -> None:
    @junction
    async def combine(order: Order, /, later: Later | None = None) -> str:
        return f"{order.number} {later}"

    assert await train("combine", double >> combine).run(Order(1)) == "1 Later(number=2)"


def test_a_junction_of_a_junction_is_the_same() -> None:
    assert cast("Any", junction(cast("Any", double))) is double


@pytest.mark.parametrize("thing", [3, "text", Order])
def test_an_object_that_is_not_callable_is_no_junction(thing: Any) -> None:
    with pytest.raises(DefinitionError, match="cannot be a junction"):
        junction(thing)


async def stream(order: Order) -> AsyncGenerator[int]:
    yield order.number


def count(order: Order) -> Generator[int]:
    yield order.number


class Stream:
    def __call__(self, order: Order) -> Generator[int]:
        yield order.number


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (stream, "'stream' is an async generator function"),
        (count, "'count' is a generator function"),
        (Stream, "'Stream' is a generator function"),
        (Stream(), "'Stream' is a generator function"),
    ],
)
def test_a_generator_function_is_no_junction_since_its_body_would_never_run(function: Any, said: str) -> None:
    with pytest.raises(DefinitionError, match=rf"{said}.* return a value instead of `yield`"):
        junction(function)
    with pytest.raises(DefinitionError, match=said):
        train_of(function)


def test_a_parameter_without_an_annotation_is_named() -> None:
    @junction
    def bad(order):  # noqa: ANN001, ANN202 # pyright: ignore[reportUnknownParameterType, reportMissingParameterType]
        return order  # pyright: ignore[reportUnknownVariableType]

    with pytest.raises(DefinitionError, match="junction 'bad': parameter 'order' has no type annotation"):
        train("bad", bad)  # pyright: ignore[reportUnknownArgumentType]


def test_a_result_without_an_annotation_is_refused() -> None:
    @junction
    def bad(order: Order):  # noqa: ANN202
        return order

    with pytest.raises(DefinitionError, match="junction 'bad' has no return annotation"):
        train("bad", bad)


def test_an_annotation_that_cannot_be_read_is_named_with_the_likely_reason() -> None:
    @junction
    def bad(order: Order, price: Decimal) -> int:
        return order.number + int(price)

    with pytest.raises(DefinitionError) as caught:
        train("bad", bad)
    assert str(caught.value) == (
        "junction 'bad': cannot read the annotation 'Decimal' of parameter 'price': "
        "name 'Decimal' is not defined; is it imported under TYPE_CHECKING only?"
    )


@pytest.mark.parametrize("kind", ["args", "kwargs"])
def test_open_ended_parameters_are_refused(kind: str) -> None:
    @junction
    def with_args(order: Order, *rest: int) -> int:
        return order.number + len(rest)

    @junction
    def with_kwargs(order: Order, **rest: int) -> int:
        return order.number + len(rest)

    with pytest.raises(DefinitionError, match="cannot be injected by type"):
        train("open", with_args if kind == "args" else with_kwargs)


async def test_a_train_of_one_function_is_named_like_it() -> None:
    async def greet(order: Order) -> str:
        return f"hello {order.number}"

    assert train_of(greet).name == "greet"
    assert train_of(greet, name="other").name == "other"
    assert await train_of(greet, max_retries=2).run(Order(1)) == "hello 1"


async def test_a_function_may_refer_to_what_is_defined_below_it() -> None:
    async def greet(order: Order) -> str:
        return f"hello {suffix(order)}"

    whole = train_of(greet)

    def suffix(order: Order) -> str:
        return str(order.number)

    assert await whole.run(Order(1)) == "hello 1"


def test_a_train_of_one_function_is_checked_too() -> None:
    def greet(order: Order, client: Client) -> str:
        return f"{order} {client}"

    with pytest.raises(RouteError, match="CHAIN001"):
        train_of(greet)
