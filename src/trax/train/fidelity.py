"""Detect what JSON cannot represent: once for a type, and for a value when it is encoded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from trax.errors import FieldError

# Nodes of a pydantic schema that encode without loss. Any other value is decoded again after encoding.
LOSSLESS_NODES = frozenset(
    {
        "bool",
        "bytes",
        "computed-field",
        "date",
        "datetime",
        "decimal",
        "default",
        "dict",
        "enum",
        "frozenset",
        "int",
        "list",
        "literal",
        "model",
        "model-field",
        "model-fields",
        "none",
        "nullable",
        "set",
        "str",
        "time",
        "timedelta",
        "tuple",
        "url",
        "uuid",
    }
)
CUSTOM_SERIALIZATION = frozenset(
    {"serialization", "serialization_exclude", "serialization_exclude_if", "root_model"}
)
SKIPPED_KEYS = frozenset({"cls", "config", "default", "metadata"})


@dataclass(frozen=True, slots=True)
class Traits:
    """What values of a type may contain."""

    may_hold_floats: bool
    must_be_read_back: bool


def traits_of(schema: Any) -> Traits:
    """Read the traits of a type from its pydantic schema."""
    nodes = set(_nodes(schema))
    return Traits(not nodes <= LOSSLESS_NODES, not nodes <= LOSSLESS_NODES | {"float"})


def find_unwritable(value: Any, path: str = "") -> Iterator[FieldError]:
    """Everything in a value of plain Python types that JSON cannot represent."""
    if isinstance(value, float) and not math.isfinite(value):
        yield FieldError(path, "a number that is not finite cannot be written as JSON", value)
    elif isinstance(value, str) and not _is_unicode(value):
        yield FieldError(
            path, "text with a lone surrogate is not Unicode and cannot be written as JSON", value
        )
    elif isinstance(value, Mapping):
        for key, each in cast("Mapping[Any, Any]", value).items():
            yield from find_unwritable(key, f"{path} (key)".strip())
            yield from find_unwritable(each, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list | tuple | set | frozenset):
        for index, each in enumerate(cast("Iterable[Any]", value)):
            yield from find_unwritable(each, f"{path}.{index}".lstrip("."))


def _nodes(schema: Any) -> Iterator[str]:
    """The types of all nodes in a schema, and the names of custom serialization settings."""
    if isinstance(schema, dict):
        node = cast("dict[str, Any]", schema)
        yield from (kind for kind in (node.get("type"),) if isinstance(kind, str))
        yield from (name for name in CUSTOM_SERIALIZATION if node.get(name))
        for below in _child_schemas(node):
            yield from _nodes(below)
    elif isinstance(schema, list | tuple):
        for below in cast("Iterable[Any]", schema):
            yield from _nodes(below)


def _child_schemas(node: dict[str, Any]) -> list[Any]:
    fields = node.get("fields")  # keyed by field name, which can be anything, even `default`
    named = list(cast("dict[str, Any]", fields).values()) if isinstance(fields, dict) else [fields]
    return named + [each for name, each in node.items() if name not in SKIPPED_KEYS and name != "fields"]


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
