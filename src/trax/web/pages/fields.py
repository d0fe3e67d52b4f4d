"""A form for any input: fields from a JSON Schema. What no field can hold is edited as JSON, in its place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Schema = Mapping[str, Any]

DEEPEST: Final = 6
"""A type may hold itself. Below this it is edited as JSON."""


class Kind(StrEnum):
    """What somebody types into, or ticks."""

    TEXT = "text"
    SECRET = "password"  # noqa: S105
    INTEGER = "integer"
    NUMBER = "number"
    TICK = "tick"
    CHOICE = "choice"
    DATE = "date"
    TIME = "time"
    JSON = "json"
    GROUP = "group"
    LIST = "list"
    NOTHING = "nothing"


FORMATS: Final = {"date": Kind.DATE, "time": Kind.TIME, "password": Kind.SECRET}
PLAIN: Final = {
    "integer": Kind.INTEGER,
    "number": Kind.NUMBER,
    "null": Kind.NOTHING,
    "boolean": Kind.TICK,
    "string": Kind.TEXT,
}
HINTS: Final = {
    "date-time": "as 2027-03-01T12:00:00Z",
    "duration": "as PT90S or 00:01:30",
    "uuid": "as 00000000-0000-0000-0000-000000000000",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One place to put a value. `path` is where it goes: "lines.0.sku"; that of the whole input is empty."""

    path: str
    kind: Kind
    label: str
    hint: str = ""
    is_required: bool = True
    choices: tuple[Any, ...] = ()
    default: Any = None
    children: tuple[Field, ...] = ()
    """The fields of a group; of a list, the one that each item looks like."""


def form_of(schema: Schema) -> Field:
    """The whole input as one field, which may be a group of others. A bare list is edited as JSON."""
    whole = _field(schema, schema.get("$defs", {}), path="", label="Input", is_required=True, depth=0)
    return replace(whole, kind=Kind.JSON, children=()) if whole.kind is Kind.LIST else whole


def item_of(field: Field, position: int) -> Field:
    """The field for one item of a list."""
    return _moved(field.children[0], f"{field.path}.{position}", f"{field.label} {position + 1}")


def _moved(field: Field, path: str, label: str | None = None) -> Field:
    """The same field in another place, with all below it."""
    children = tuple(_moved(child, path + child.path[len(field.path) :]) for child in field.children)
    return replace(field, path=path, label=label or field.label, children=children)


def _field(
    schema: Schema, known: Mapping[str, Any], *, path: str, label: str, is_required: bool, depth: int
) -> Field:
    schema, may_be_null = _resolved(schema, known)
    about: dict[str, Any] = {
        "path": path,
        "label": label,
        "is_required": is_required and not may_be_null,
        "default": schema.get("default"),
    }
    kind = _kind(schema) if depth < DEEPEST else Kind.JSON
    if kind is Kind.GROUP:
        about["children"] = _properties(schema, known, path, depth)
    if kind is Kind.LIST:
        item = _field(
            schema["items"],
            known,
            path=f"{path}.*".lstrip("."),
            label=label,
            is_required=True,
            depth=depth + 1,
        )
        about["children"] = (item,)
    return Field(kind=kind, choices=tuple(_choices(schema)), hint=_hint(schema, kind), **about)


def _properties(schema: Schema, known: Mapping[str, Any], path: str, depth: int) -> tuple[Field, ...]:
    required: Sequence[str] = schema.get("required", ())
    return tuple(
        _field(
            each,
            known,
            path=f"{path}.{name}".lstrip("."),
            label=name.replace("_", " "),
            is_required=name in required,
            depth=depth + 1,
        )
        for name, each in schema["properties"].items()
    )


def _resolved(schema: Schema, known: Mapping[str, Any]) -> tuple[Schema, bool]:
    """What stands behind references and "or nothing"; what is said beside them stays."""
    beside = {word: schema[word] for word in ("default", "description") if word in schema}
    if "$ref" in schema:
        target = known.get(str(schema["$ref"]).rpartition("/")[2], {})
        inner, may_be_null = _resolved(target, known)
        return {**inner, **beside}, may_be_null
    options = schema.get("anyOf", ())
    real = [option for option in options if option.get("type") != "null"]
    if options and len(real) == 1:
        inner, _ = _resolved(real[0], known)
        return {**inner, **beside}, len(real) < len(options)
    return schema, False


def _kind(schema: Schema) -> Kind:
    match schema:
        case {"enum": _} | {"const": _}:
            return Kind.CHOICE
        case {"type": "string", "format": str(form)} if form in FORMATS:
            return FORMATS[form]
        case {"type": "object", "properties": _}:
            return Kind.GROUP
        case {"type": "array", "items": items} if items and "prefixItems" not in schema:
            return Kind.LIST
        case {"type": str(word)}:
            return PLAIN.get(word, Kind.JSON)
        case _:
            return Kind.JSON


def _choices(schema: Schema) -> Sequence[Any]:
    return [schema["const"]] if "const" in schema else schema.get("enum", ())


def _hint(schema: Schema, kind: Kind) -> str:
    described = str(schema.get("description", "")).strip().removesuffix(".")
    form = HINTS.get(schema.get("format", ""), "as JSON" if kind is Kind.JSON else "")
    return "; ".join(part for part in (described, form, _bounds(schema)) if part)


def _bounds(schema: Schema) -> str:
    words = {
        "minimum": "at least {}",
        "exclusiveMinimum": "more than {}",
        "maximum": "at most {}",
        "exclusiveMaximum": "less than {}",
        "minLength": "{} characters or more",
        "maxLength": "{} characters at most",
        "pattern": "matches {}",
    }
    return ", ".join(text.format(schema[word]) for word, text in words.items() if word in schema)
