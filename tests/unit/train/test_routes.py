from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from trax.errors import DefinitionError, InvalidInput, WiringError
from trax.train import Done, Failed, Route, extract, junction, short_circuit, train, unchecked


@dataclass
class Order:
    number: int
    marks: list[str] = field(default_factory=list[str])


@dataclass
class Invoice:
    text: str


@dataclass
class Receipt:
    text: str


@junction
async def halve(number: int) -> float:
    return number / 2


@junction
async def describe(number: float) -> str:
    return f"it is {number}"


@junction
async def bill(order: Order) -> Invoice:
    return Invoice(f"order {order.number}")


@junction
async def receive(invoice: Invoice) -> Receipt:
    return Receipt(invoice.text)


@junction
async def fail(order: Order) -> Invoice:
    raise ValueError(order.number)


async def test_each_junction_receives_its_value_by_type() -> None:
    whole = train("describe", halve >> describe)

    assert await whole.run(7) == "it is 3.5"


async def test_the_input_is_still_there_for_the_third_junction() -> None:
    @junction
    async def sign(number: int) -> Invoice:
        return Invoice(f"signed {number}")

    whole = train("sign", halve >> describe >> sign)

    assert await whole.run(7) == Invoice("signed 7")


async def test_the_later_of_two_values_of_a_type_is_seen() -> None:
    @junction
    def reword(invoice: Invoice) -> Invoice:
        return Invoice(invoice.text + ", reworded")

    whole = train("reword", bill >> reword >> receive)

    assert await whole.run(Order(1)) == Receipt("order 1, reworded")


async def test_a_returned_tuple_is_split_and_rebuilt_in_the_requested_order() -> None:
    @junction
    async def both(order: Order) -> tuple[Invoice, Receipt]:
        return Invoice(f"{order.number}"), Receipt("paid")

    @junction
    async def turned(pair: tuple[Receipt, Invoice]) -> str:
        receipt, invoice = pair
        return f"{receipt.text} {invoice.text}"

    whole = train("turned", both >> receive_only >> turned)

    assert await whole.run(Order(3)) == "paid 3"


@junction
async def receive_only(receipt: Receipt) -> None:
    assert receipt.text == "paid"


@pytest.mark.parametrize("count", [0, 1, 8])
async def test_a_tuple_of_a_size_that_cannot_be_split_fails_the_run(count: int) -> None:
    @junction
    async def many(order: Order) -> tuple[Any, ...]:
        return (order,) * count

    @junction
    async def untyped(order: Order) -> tuple:  # type: ignore[type-arg]  # pyright: ignore[reportMissingTypeArgument, reportUnknownParameterType]
        return (order,) * count  # pyright: ignore[reportUnknownVariableType]

    kept = train("kept", many)  # pyright: ignore[reportUnknownVariableType]
    split = train("split", untyped, output=Order)  # pyright: ignore[reportUnknownArgumentType]

    assert len(await kept.run(Order(1))) == count
    outcome = await split.attempt(Order(1))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, WiringError)
    assert f"a tuple of {count}" in str(outcome.error)


async def test_a_bare_tuple_is_split_and_can_be_given_as_it_is() -> None:
    @junction
    async def both(order: Order) -> tuple:  # type: ignore[type-arg]  # pyright: ignore[reportMissingTypeArgument, reportUnknownParameterType]
        return Invoice(f"{order.number}"), Receipt("paid")

    pair = train("pair", cast("Any", both) >> unchecked(receive_only), output=cast("type[Any]", tuple))

    assert await pair.run(Order(1)) == (Invoice("1"), Receipt("paid"))


def test_a_declared_tuple_of_eight_elements_is_refused_at_definition() -> None:
    @junction
    async def eight(number: int) -> tuple[int, str, float, bytes, bool, complex, Order, Invoice]:
        raise NotImplementedError

    with pytest.raises(DefinitionError, match="a tuple of 8 elements cannot be stored; it must have 2 to 7"):
        train("eight", eight, output=int)


async def test_a_change_to_an_object_in_memory_is_seen_without_returning_it() -> None:
    @junction
    async def mark(order: Order) -> None:
        order.marks.append("seen")

    @junction
    async def marks(order: Order) -> str:
        return ",".join(order.marks)

    assert await train("marks", mark >> marks).run(Order(1)) == "seen"


async def test_attempt_returns_the_value_of_a_completed_run() -> None:
    assert await train("bill", bill).attempt(Order(2)) == Done(Invoice("order 2"))


async def test_a_value_that_is_nowhere_to_be_found_fails_the_run_and_is_named() -> None:
    whole = train("lost", bill >> unchecked(needs_receipt))

    outcome = await whole.attempt(Order(1))

    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, WiringError)
    assert str(outcome.error) == (
        "train 'lost': junction 'needs_receipt' needs Receipt (parameter 'receipt'), "
        "which was not found; available: Invoice, Order"
    )


@junction
async def needs_receipt(receipt: Receipt) -> str:
    return receipt.text


async def test_a_missing_part_of_a_tuple_is_named() -> None:
    @junction
    async def pair(both: tuple[Invoice, Receipt]) -> str:
        return both[0].text

    with pytest.raises(WiringError, match="needs Receipt"):
        await train("pair", bill >> unchecked(pair)).run(Order(1))


async def test_a_short_circuit_that_raises_is_skipped() -> None:
    whole = train("raises", short_circuit(fail) >> bill)

    assert await whole.run(Order(1)) == Invoice("order 1")


async def test_a_short_circuit_provides_the_result_and_the_rest_still_runs() -> None:
    order = Order(1)

    @junction
    async def cached(order: Order) -> Invoice:
        return Invoice(f"cached {order.number}")

    @junction
    async def mark(order: Order) -> Invoice:
        order.marks.append("ran")
        return Invoice("computed")

    assert await train("cached", short_circuit(cached) >> mark).run(order) == Invoice("cached 1")
    assert order.marks == ["ran"]


async def test_the_last_of_two_short_circuits_wins() -> None:
    @junction
    async def second(order: Order) -> Invoice:
        return Invoice(f"second {order.number}")

    whole = train("two", short_circuit(bill) >> short_circuit(second) >> bill)

    assert await whole.run(Order(1)) == Invoice("second 1")


async def test_a_short_circuit_of_another_type_is_only_put_into_memory() -> None:
    @junction
    async def receipt(order: Order) -> Receipt:
        return Receipt(f"for {order.number}")

    @junction
    async def combined(receipt: Receipt, order: Order) -> Invoice:
        return Invoice(f"{receipt.text}, {order.number}")

    assert await train("other", short_circuit(receipt) >> combined).run(Order(1)) == Invoice("for 1, 1")


async def test_a_flag_from_a_short_circuit_is_no_number() -> None:
    @junction
    async def flag(order: Order) -> bool:
        return bool(order.number)

    @junction
    async def count(order: Order) -> int:
        return order.number

    assert await train("count", short_circuit(flag) >> count).run(Order(5)) == 5


async def test_a_short_circuit_that_returns_none_has_no_result() -> None:
    @junction
    async def nothing(order: Order) -> Invoice | None:
        return None if order.number else Invoice("never")

    assert await train("none", short_circuit(nothing) >> bill).run(Order(1)) == Invoice("order 1")


async def test_a_short_circuit_with_a_missing_input_fails_the_run() -> None:
    whole = train("missing", unchecked(short_circuit(needs_receipt)) >> bill, input=Order)

    with pytest.raises(WiringError, match="needs Receipt"):
        await whole.run(Order(1))


async def test_a_failure_beats_the_answer_of_a_short_circuit() -> None:
    with pytest.raises(ValueError, match="1"):
        await train("fails", short_circuit(bill) >> fail).run(Order(1))


async def test_a_trailing_short_circuit_leaves_the_type_of_the_route_alone() -> None:
    whole = train("trailing", bill >> short_circuit(receive))

    assert whole.output_type is Invoice
    assert await whole.run(Order(1)) == Invoice("order 1")


@dataclass
class Customer:
    name: str


@dataclass
class Shipment:
    _hidden: Customer
    label: str
    payer: Customer
    receiver: Customer


@junction
async def greet(customer: Customer) -> str:
    return f"dear {customer.name}"


async def test_extract_uses_the_first_public_member_of_exactly_that_type() -> None:
    shipment = Shipment(Customer("hidden"), "label", Customer("payer"), Customer("receiver"))

    assert await train("greet", extract(Shipment, Customer) >> greet).run(shipment) == "dear payer"


async def test_extract_names_both_types_when_there_is_no_such_member() -> None:
    whole = train("greet", extract(Order, Customer) >> greet)

    with pytest.raises(WiringError, match=r"extract\(Order, Customer\) found no Customer in Order.*public"):
        await whole.run(Order(1))


async def test_extract_refuses_a_member_that_is_none() -> None:
    shipment = Shipment(Customer("hidden"), "label", None, Customer("receiver"))  # pyright: ignore[reportArgumentType]

    with pytest.raises(WiringError, match="must not be None"):
        await train("greet", extract(Shipment, Customer) >> greet).run(shipment)


async def test_extract_of_a_source_that_is_missing_fails_the_run() -> None:
    whole = train("greet", bill >> extract(Shipment, Customer) >> greet)

    with pytest.raises(WiringError, match="needs Shipment"):
        await whole.run(Order(1))


async def test_extract_knows_classes_that_are_local_to_a_function() -> None:
    @dataclass
    class Letter:
        sender: Customer

    assert await train("greet", extract(Letter, Customer) >> greet).run(Letter(Customer("Ada"))) == "dear Ada"


async def test_none_as_input_runs_no_junction() -> None:
    ran: list[Order] = []

    @junction
    async def remember(order: Order) -> None:
        ran.append(order)

    with pytest.raises(InvalidInput, match="input is None, expected Order"):
        await train("remember", remember).run(None)  # pyright: ignore[reportArgumentType]
    assert ran == []


async def test_a_route_without_a_first_parameter_has_no_input() -> None:
    @junction
    async def start() -> Order:
        return Order(9)

    assert await train("start", start >> bill).run(None) == Invoice("order 9")


async def test_a_junction_that_declares_a_type_and_returns_none_fails_the_run() -> None:
    @junction
    async def forgetful(_order: Order) -> Invoice:
        return None  # pyright: ignore[reportReturnType]

    with pytest.raises(WiringError, match="junction 'forgetful' declares Invoice, but the value is None"):
        await train("forgetful", forgetful).run(Order(1))


async def test_routes_are_coupled_with_routes_and_stay_as_they_were() -> None:
    first = halve >> describe
    second = first >> first

    assert [stop.action.name for stop in second.stops] == ["halve", "describe"] * 2
    assert repr(first) == "halve >> describe"
    assert isinstance(second, Route)


def test_only_what_is_a_junction_can_stand_in_a_route() -> None:
    with pytest.raises(DefinitionError, match="cannot be part of a route"):
        halve >> print  # pyright: ignore[reportOperatorIssue, reportUnusedExpression]


async def test_the_observer_is_called_with_each_junction_before_it_runs() -> None:
    seen: list[str] = []

    await train("describe", halve >> describe).run(2, on_junction=seen.append)

    assert seen == ["halve", "describe"]


async def test_extra_values_are_found_under_the_type_they_are_given_for() -> None:
    @junction
    def combined(order: Order, receipt: Receipt) -> Invoice:
        return Invoice(f"{order.number} {receipt.text}")

    whole = train("combined", combined, extra=(Receipt,))

    assert await whole.run(Order(1), extra={Receipt: Receipt("paid")}) == Invoice("1 paid")
    assert whole.run_blocking(Order(2), extra={Receipt: Receipt("paid")}) == Invoice("2 paid")


async def test_a_blocking_run_refuses_an_async_junction_by_name() -> None:
    with pytest.raises(DefinitionError, match="its junction 'halve' is async"):
        train("describe", halve >> describe).run_blocking(1)
