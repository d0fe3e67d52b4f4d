"""Forms from a JSON Schema: fields, texts and values. Values without a suitable field are edited as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, cast

from trax.bounds import load_json
from trax.web.masking import is_mark
from trax.web.pages.formats import parse_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from trax.errors import FieldError

    Schema = Mapping[str, Any]
    FieldTexts = Mapping[str, str]
    """The text of each field, by path."""

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
    "duration": "for example 90s, 25 min or 1h30m",
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


YES: Final = "yes"
MAX_ITEMS: Final = 100
MISSING: Final = object()
"""An empty field: the value is left out, so that the type's default applies."""


@dataclass(frozen=True, slots=True)
class RenderedField:
    """A field as rendered: its text and its errors."""

    field: FormField
    text: str
    problems: tuple[str, ...] = ()
    children: tuple[RenderedField, ...] = ()

    @property
    def is_hidden(self) -> bool:
        """Whether the text is the mark of a hidden value, which is kept if unchanged."""
        return is_mark(self.text)

    @property
    def is_composite(self) -> bool:
        """Whether the field is not a text control."""
        return self.field.kind in {Kind.GROUP, Kind.LIST, Kind.TICK}

    @property
    def options(self) -> tuple[str, ...]:
        """The choices as texts."""
        return tuple(_text(self.field, choice) for choice in self.field.choices)


def value_of(field: FormField, texts: FieldTexts) -> Any:
    """The value of the form as plain data."""
    value = _value(field, texts)
    if value is MISSING:
        return {} if field.kind is Kind.GROUP else None
    return value


def texts_of(field: FormField, value: Any) -> dict[str, str]:
    """The texts that represent a value."""
    match field.kind, value:
        case Kind.GROUP, dict():
            named = {child.path.rpartition(".")[2]: child for child in field.children}
            parts = [texts_of(child, value[name]) for name, child in named.items() if name in value]
        case Kind.LIST, list():
            items = cast("list[Any]", value)
            parts = [texts_of(item_of(field, place), item) for place, item in enumerate(items)]
            parts.append({_size(field): str(len(items))})
        case _:
            return {field.path: _text(field, value)}
    return {path: text for part in parts for path, text in part.items()}


def default_texts(field: FormField) -> dict[str, str]:
    """The texts of an empty form: the defaults."""
    if field.kind is Kind.GROUP and field.default is None:
        return {path: text for child in field.children for path, text in default_texts(child).items()}
    return {} if field.default is None else texts_of(field, field.default)


def render_form(field: FormField, texts: FieldTexts, errors: Iterable[FieldError] = ()) -> RenderedField:
    """Build the form with texts and errors at their fields."""
    problems: dict[str, list[str]] = {}
    places = set(_paths(field, texts))
    for error in errors:
        problems.setdefault(_nearest_path(error.path, places), []).append(error.message)
    return _render_field(field, texts, problems)


def with_item(field_path: str, texts: FieldTexts) -> dict[str, str]:
    """Add an item to a list."""
    return {**texts, f"{field_path}.size": str(_number(texts.get(f"{field_path}.size")) + 1)}


def without_item(item_path: str, texts: FieldTexts) -> dict[str, str]:
    """Remove an item from a list; later items move up."""
    list_path, _, place = item_path.rpartition(".")
    gone, size = _number(place), _number(texts.get(f"{list_path}.size"))
    kept: dict[str, str] = {f"{list_path}.size": str(max(0, size - 1))}
    for path, text in texts.items():
        rest = path.removeprefix(f"{list_path}.")
        number, dot, below = rest.partition(".")
        at = parse_whole(number)
        if rest == path or at is None:
            kept.setdefault(path, text)
        elif at != gone:
            kept[f"{list_path}.{at - (at > gone)}{dot}{below}"] = text
    return kept


def _render_field(field: FormField, texts: FieldTexts, problems: Mapping[str, list[str]]) -> RenderedField:
    return RenderedField(
        field=field,
        text=texts.get(field.path, ""),
        problems=tuple(problems.get(field.path, ())),
        children=tuple(_render_field(child, texts, problems) for child in _child_fields(field, texts)),
    )


def _child_fields(field: FormField, texts: FieldTexts) -> Iterator[FormField]:
    if is_mark(texts.get(field.path, "")):
        return
    if field.kind is Kind.LIST:
        yield from (item_of(field, place) for place in range(_number(texts.get(_size(field)))))
    elif field.kind is Kind.GROUP:
        yield from field.children


def _paths(field: FormField, texts: FieldTexts) -> Iterator[str]:
    yield field.path
    for child in _child_fields(field, texts):
        yield from _paths(child, texts)


def _nearest_path(path: str, places: set[str]) -> str:
    """The closest field of an error's path, which may point inside a field."""
    while path and path not in places:
        path = path.rpartition(".")[0]
    return path


def _value(field: FormField, texts: FieldTexts) -> Any:
    if is_mark(texts.get(field.path, "")):
        return texts[field.path]
    match field.kind:
        case Kind.NOTHING:
            return None
        case Kind.GROUP:
            return _group(field, texts)
        case Kind.LIST:
            items = [value_of(child, texts) for child in _child_fields(field, texts)]
            return items if items or field.is_required else MISSING
        case Kind.TICK:
            return texts.get(field.path) == YES
        case _:
            text = texts.get(field.path, "")
            return _parse_text(field, text) if text.strip() else MISSING


def _group(field: FormField, texts: FieldTexts) -> Any:
    values = {child.path.rpartition(".")[2]: _value(child, texts) for child in field.children}
    given = {name: value for name, value in values.items() if value is not MISSING}
    return MISSING if not field.is_required and _is_untouched(field, texts) else given


def _is_untouched(field: FormField, texts: FieldTexts) -> bool:
    """Whether a group has only its initial texts, and is therefore left out."""
    at_first = {path: text for child in field.children for path, text in default_texts(child).items()}
    return all(texts.get(path, "") == at_first.get(path, "") for path in _paths(field, texts))


def _parse_text(field: FormField, text: str) -> Any:
    """Parse a text; an invalid one stays as text, so that validation by the type reports it."""
    if field.kind is Kind.CHOICE:
        return next((choice for choice in field.choices if _text(field, choice) == text), text)
    if field.kind in {Kind.INTEGER, Kind.NUMBER, Kind.JSON}:
        try:
            return load_json(text)
        except ValueError:
            return text
    return text


def _text(field: FormField, value: Any) -> str:
    if isinstance(value, str) and is_mark(value):
        return value
    if field.kind is Kind.TICK:
        return YES if value else ""
    if value is None:
        return ""
    if isinstance(value, str) and field.kind is not Kind.JSON:
        return value
    return json.dumps(value, ensure_ascii=False, indent=2 if field.kind is Kind.JSON else None)


def _size(field: FormField) -> str:
    return f"{field.path}.size"


def _number(text: str | None) -> int:
    """Parse a list size, limited so that a forged form cannot exhaust memory."""
    return min(parse_whole(text or "") or 0, MAX_ITEMS)
