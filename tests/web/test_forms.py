"""A form from a schema: whatever an input is made of, it can be typed, and comes out as it went in."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, SecretStr, TypeAdapter

from trax.errors import FieldError
from trax.web.pages import forms
from trax.web.pages.forms import Kind, form_of


class Customer(BaseModel):
    """Who pays."""

    name: str
    email: str | None = None


class Line(BaseModel):
    sku: str
    bags: Annotated[int, Field(ge=1)] = 1


class Order(BaseModel):
    customer: Customer
    lines: list[Line]
    kind: Literal["shop", "market"] = "shop"
    day: date | None = None
    weight: float = 1.5
    is_gift: bool = False
    tags: list[str] = []
    extra: dict[str, int] = {}
    password: SecretStr | None = None


class Tree(BaseModel):
    children: list[Tree] = []


def form(declared: Any) -> forms.FormField:
    return form_of(TypeAdapter(declared).json_schema())


def by_path(field: forms.FormField) -> dict[str, forms.FormField]:
    found = {field.path: field}
    for child in field.children:
        found |= by_path(child)
    return found


def test_every_kind_of_value_has_its_own_field() -> None:
    kinds = {path: field.kind for path, field in by_path(form(Order)).items()}

    assert kinds == {
        "": Kind.GROUP,
        "customer": Kind.GROUP,
        "customer.name": Kind.TEXT,
        "customer.email": Kind.TEXT,
        "lines": Kind.LIST,
        "lines.*": Kind.GROUP,
        "lines.*.sku": Kind.TEXT,
        "lines.*.bags": Kind.INTEGER,
        "kind": Kind.CHOICE,
        "day": Kind.DATE,
        "weight": Kind.NUMBER,
        "is_gift": Kind.TICK,
        "tags": Kind.LIST,
        "tags.*": Kind.TEXT,
        "extra": Kind.JSON,
        "password": Kind.SECRET,
    }


def test_required_and_optional_fields_are_distinguished() -> None:
    found = by_path(form(Order))

    assert {path for path, field in found.items() if field.is_required and path} == {
        "customer",
        "customer.name",
        "lines",
        "lines.*",
        "lines.*.sku",
        "tags.*",
    }
    assert found["lines.*.bags"].hint == "at least 1"
    assert found["kind"].choices == ("shop", "market")


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        (str, Kind.TEXT),
        (int, Kind.INTEGER),
        (None, Kind.NOTHING),
        (list[int], Kind.JSON),
        (int | str, Kind.JSON),
        (tuple[int, str], Kind.JSON),
        (Any, Kind.JSON),
    ],
)
def test_an_input_need_not_be_a_record(declared: Any, kind: Kind) -> None:
    assert form(declared).kind is kind


def test_a_type_that_holds_itself_ends_in_json() -> None:
    kinds = [field.kind for field in by_path(form(Tree)).values()]

    assert kinds[-1] is Kind.JSON
    assert len(kinds) < 20


def test_typed_values_become_the_input_of_the_train() -> None:
    typed = {
        "customer.name": "Ada",
        "lines.size": "2",
        "lines.0.sku": "sidamo",
        "lines.0.bags": "3",
        "lines.1.sku": "harrar",
        "kind": "market",
        "day": "2027-03-01",
        "weight": "2.5",
        "is_gift": "yes",
        "extra": '{"a": 1}',
    }

    value = forms.value_of(form(Order), typed)

    assert value == {
        "customer": {"name": "Ada"},
        "lines": [{"sku": "sidamo", "bags": 3}, {"sku": "harrar"}],
        "kind": "market",
        "day": "2027-03-01",
        "weight": 2.5,
        "is_gift": True,
        "extra": {"a": 1},
    }
    assert Order.model_validate(value).lines[1].bags == 1


def test_a_value_can_be_typed_again_and_stays_the_same() -> None:
    value = {
        "customer": {"name": "Ada", "email": "ada@example.org"},
        "lines": [{"sku": "sidamo", "bags": 3}],
        "kind": "shop",
        "day": "2027-03-01",
        "weight": 2.5,
        "is_gift": True,
        "tags": ["a", "b"],
        "extra": {"a": 1},
    }

    typed = forms.texts_of(form(Order), value)

    assert forms.value_of(form(Order), typed) == value


def test_a_fresh_form_holds_the_defaults() -> None:
    typed = forms.default_texts(form(Order))

    assert (typed["kind"], typed["weight"], typed["is_gift"]) == ("shop", "1.5", "")
    assert "customer.name" not in typed


def test_a_number_that_is_none_stays_as_it_was_typed() -> None:
    assert forms.value_of(form(Line), {"sku": "a", "bags": "many"}) == {"sku": "a", "bags": "many"}


def test_an_error_is_shown_at_its_field() -> None:
    typed = {"lines.size": "1", "lines.0.bags": "0"}
    errors = [
        FieldError("lines.0.bags", "at least 1", 0),
        FieldError("kind.literal", "not one of these", None),
        FieldError("nowhere", "odd", None),
    ]

    shown = forms.render_form(form(Order), typed, errors)

    places = {child.field.path: child for child in shown.children}
    (line,) = places["lines"].children
    assert [(child.field.path, child.text, child.problems) for child in line.children] == [
        ("lines.0.sku", "", ()),
        ("lines.0.bags", "0", ("at least 1",)),
    ]
    assert places["kind"].problems == ("not one of these",)
    assert shown.problems == ("odd",)


def test_items_come_and_go_and_the_others_keep_what_was_typed() -> None:
    typed = {"lines.size": "2", "lines.0.sku": "a", "lines.1.sku": "b", "lines.1.bags": "2", "kind": "shop"}

    more = forms.with_item("lines", typed)
    less = forms.without_item("lines.0", more)

    assert more["lines.size"] == "3"
    assert less == {"lines.size": "2", "lines.0.sku": "b", "lines.0.bags": "2", "kind": "shop"}


def test_the_number_of_items_is_limited() -> None:
    shown = forms.render_form(form(Order), {"lines.size": "1000000"})

    assert max(len(child.children) for child in shown.children) == 100


class Parcel(BaseModel):
    weight: int = 0
    line: Line | None = None
    sealed: Literal[True, False] = True


def test_an_optional_group_is_omitted_unless_it_is_filled_in() -> None:
    untouched = forms.default_texts(form(Parcel))
    touched = {**untouched, "line.sku": "a", "weight": "0"}

    assert forms.value_of(form(Parcel), untouched) == {"weight": 0, "sealed": True}
    assert forms.value_of(form(Parcel), touched)["line"] == {"sku": "a", "bags": 1}


def test_choices_are_shown_as_they_are_typed() -> None:
    shown = forms.render_form(form(Parcel), {"sealed": "false"})

    (sealed,) = [child for child in shown.children if child.field.path == "sealed"]
    assert sealed.options == ("true", "false")
    assert forms.value_of(form(Parcel), {"sealed": "false"})["sealed"] is False
