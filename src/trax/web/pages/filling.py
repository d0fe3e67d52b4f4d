"""What is typed into a form, and the value it stands for. The train's own type judges it, nobody else."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from trax.bounds import load_json
from trax.web.masking import is_mark
from trax.web.pages.fields import Field, Kind, item_of
from trax.web.pages.spelled import whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from trax.errors import FieldError

    Typed = Mapping[str, str]
    """What stands in each field, by its path."""

YES: Final = "yes"
MOST_ITEMS: Final = 100
MISSING: Final = object()
"""Nothing was typed: the value is left out, so that the type's own default counts."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A field as it stands on the page: what was typed, and what is wrong with it."""

    field: Field
    text: str
    problems: tuple[str, ...] = ()
    children: tuple[Shown, ...] = ()

    @property
    def is_hidden(self) -> bool:
        """Whether the mark of a hidden value stands there, which is kept as long as the mark is."""
        return is_mark(self.text)

    @property
    def is_whole(self) -> bool:
        """Whether the field is no place to type a value as text."""
        return self.field.kind in {Kind.GROUP, Kind.LIST, Kind.TICK}

    @property
    def options(self) -> tuple[str, ...]:
        """What can be chosen, as it would be typed."""
        return tuple(_text(self.field, choice) for choice in self.field.choices)


def value_of(field: Field, typed: Typed) -> Any:
    """What the form stands for, as plain data."""
    value = _value(field, typed)
    if value is MISSING:
        return {} if field.kind is Kind.GROUP else None
    return value


def spread(field: Field, value: Any) -> dict[str, str]:
    """The other way: what to type to get this value."""
    match field.kind, value:
        case Kind.GROUP, dict():
            named = {child.path.rpartition(".")[2]: child for child in field.children}
            parts = [spread(child, value[name]) for name, child in named.items() if name in value]
        case Kind.LIST, list():
            items = cast("list[Any]", value)
            parts = [spread(item_of(field, place), item) for place, item in enumerate(items)]
            parts.append({_size(field): str(len(items))})
        case _:
            return {field.path: _text(field, value)}
    return {path: text for part in parts for path, text in part.items()}


def beginning(field: Field) -> dict[str, str]:
    """What stands in a form nobody has typed into: the defaults."""
    if field.kind is Kind.GROUP and field.default is None:
        return {path: text for child in field.children for path, text in beginning(child).items()}
    return {} if field.default is None else spread(field, field.default)


def shown(field: Field, typed: Typed, errors: Iterable[FieldError] = ()) -> Shown:
    """The form with what was typed and what is wrong, each at its own field."""
    problems: dict[str, list[str]] = {}
    places = set(_paths(field, typed))
    for error in errors:
        problems.setdefault(_nearest(error.path, places), []).append(error.message)
    return _shown(field, typed, problems)


def with_item(field_path: str, typed: Typed) -> dict[str, str]:
    """One more item at the end of a list."""
    return {**typed, f"{field_path}.size": str(_number(typed.get(f"{field_path}.size")) + 1)}


def without_item(item_path: str, typed: Typed) -> dict[str, str]:
    """One item less; those after it move up."""
    list_path, _, place = item_path.rpartition(".")
    gone, size = _number(place), _number(typed.get(f"{list_path}.size"))
    kept: dict[str, str] = {f"{list_path}.size": str(max(0, size - 1))}
    for path, text in typed.items():
        rest = path.removeprefix(f"{list_path}.")
        number, dot, below = rest.partition(".")
        at = whole(number)
        if rest == path or at is None:
            kept.setdefault(path, text)
        elif at != gone:
            kept[f"{list_path}.{at - (at > gone)}{dot}{below}"] = text
    return kept


def _shown(field: Field, typed: Typed, problems: Mapping[str, list[str]]) -> Shown:
    return Shown(
        field=field,
        text=typed.get(field.path, ""),
        problems=tuple(problems.get(field.path, ())),
        children=tuple(_shown(child, typed, problems) for child in _below(field, typed)),
    )


def _below(field: Field, typed: Typed) -> Iterator[Field]:
    if is_mark(typed.get(field.path, "")):
        return
    if field.kind is Kind.LIST:
        yield from (item_of(field, place) for place in range(_number(typed.get(_size(field)))))
    elif field.kind is Kind.GROUP:
        yield from field.children


def _paths(field: Field, typed: Typed) -> Iterator[str]:
    yield field.path
    for child in _below(field, typed):
        yield from _paths(child, typed)


def _nearest(path: str, places: set[str]) -> str:
    """The type may name a place inside a field, such as the kind of number it tried: the field is told."""
    while path and path not in places:
        path = path.rpartition(".")[0]
    return path


def _value(field: Field, typed: Typed) -> Any:
    if is_mark(typed.get(field.path, "")):
        return typed[field.path]
    match field.kind:
        case Kind.NOTHING:
            return None
        case Kind.GROUP:
            return _group(field, typed)
        case Kind.LIST:
            items = [value_of(child, typed) for child in _below(field, typed)]
            return items if items or field.is_required else MISSING
        case Kind.TICK:
            return typed.get(field.path) == YES
        case _:
            text = typed.get(field.path, "")
            return _read(field, text) if text.strip() else MISSING


def _group(field: Field, typed: Typed) -> Any:
    values = {child.path.rpartition(".")[2]: _value(child, typed) for child in field.children}
    given = {name: value for name, value in values.items() if value is not MISSING}
    return MISSING if not field.is_required and _is_untouched(field, typed) else given


def _is_untouched(field: Field, typed: Typed) -> bool:
    """Whether a group holds nothing but what stood there at first: then it is meant to be left out."""
    at_first = {path: text for child in field.children for path, text in beginning(child).items()}
    return all(typed.get(path, "") == at_first.get(path, "") for path in _paths(field, typed))


def _read(field: Field, text: str) -> Any:
    """What cannot be read stays as it was typed, so that the type says what is wrong with it."""
    if field.kind is Kind.CHOICE:
        return next((choice for choice in field.choices if _text(field, choice) == text), text)
    if field.kind in {Kind.INTEGER, Kind.NUMBER, Kind.JSON}:
        try:
            return load_json(text)
        except ValueError:
            return text
    return text


def _text(field: Field, value: Any) -> str:
    if isinstance(value, str) and is_mark(value):
        return value
    if field.kind is Kind.TICK:
        return YES if value else ""
    if value is None:
        return ""
    if isinstance(value, str) and field.kind is not Kind.JSON:
        return value
    return json.dumps(value, ensure_ascii=False, indent=2 if field.kind is Kind.JSON else None)


def _size(field: Field) -> str:
    return f"{field.path}.size"


def _number(text: str | None) -> int:
    """At most a hundred: nobody types more, and a crafted one must not fill the memory."""
    return min(whole(text or "") or 0, MOST_ITEMS)
