"""Form fields from a JSON Schema. Values without a suitable field are edited as JSON."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Schema = Mapping[str, Any]

DEEPEST: Final = 6
"""Maximum depth, since types may be recursive; deeper values are edited as JSON."""


class Kind(StrEnum):
    """Kind of form control."""

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
    "date-time": "for example 2027-03-01T12:00:00Z",
    "duration": "for example PT90S or 00:01:30",
    "uuid": "for example 00000000-0000-0000-0000-000000000000",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """A form field. `path` is the place of its value: "lines.0.sku"; empty for the whole input."""

    path: str
    kind: Kind
    label: str
    hint: str = ""
    is_required: bool = True
    choices: tuple[Any, ...] = ()
    default: Any = None
    children: tuple[FormField, ...] = ()
    """The fields of a group, or the field of a list's items."""


def form_of(schema: Schema) -> FormField:
    """Build the field of a whole input, usually a group. A list at the top is edited as JSON."""
    whole = _field(schema, schema.get("$defs", {}), path="", label="Input", is_required=True, depth=0)
    return replace(whole, kind=Kind.JSON, children=()) if whole.kind is Kind.LIST else whole


def item_of(field: FormField, position: int) -> FormField:
    """The field for one item of a list."""
    return _move_field(field.children[0], f"{field.path}.{position}", f"{field.label} {position + 1}")


def _move_field(field: FormField, path: str, label: str | None = None) -> FormField:
    """Copy a field and its children to another path."""
    children = tuple(_move_field(child, path + child.path[len(field.path) :]) for child in field.children)
    return replace(field, path=path, label=label or field.label, children=children)


def _field(
    schema: Schema, known: Mapping[str, Any], *, path: str, label: str, is_required: bool, depth: int
) -> FormField:
    schema, may_be_null = _resolve(schema, known)
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
    return FormField(kind=kind, choices=tuple(_choices(schema)), hint=_hint(schema, kind), **about)


def _properties(schema: Schema, known: Mapping[str, Any], path: str, depth: int) -> tuple[FormField, ...]:
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


def _resolve(schema: Schema, known: Mapping[str, Any]) -> tuple[Schema, bool]:
    """Resolve references and optional types; the default and description beside them are kept."""
    beside = {word: schema[word] for word in ("default", "description") if word in schema}
    if "$ref" in schema:
        target = known.get(str(schema["$ref"]).rpartition("/")[2], {})
        inner, may_be_null = _resolve(target, known)
        return {**inner, **beside}, may_be_null
    options = schema.get("anyOf", ())
    real = [option for option in options if option.get("type") != "null"]
    if options and len(real) == 1:
        inner, _ = _resolve(real[0], known)
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
