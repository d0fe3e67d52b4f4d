"""Hide secrets in inputs and outputs before they are shown, and restore them from edited forms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, cast

from trax.errors import FieldError, InvalidArgument, InvalidInput
from trax.masking import (
    HIDDEN,
    MaskedSecret,
    hide_secrets,
    holds_url_password,
    is_hidden,
    is_secret_name,
    unmask_stored,
)

FIELDS: Final = ("properties", "patternProperties", "$defs")
"""The keywords of JSON Schema that hold schemas by name."""
SHOWN: Final = frozenset({"const", "default", "enum", "example", "examples"})
"""The keywords of JSON Schema that hold values."""
VALUE_UNKNOWN: Final = "this value is hidden and cannot be restored; enter it again"
VALUE_MOVED: Final = "a hidden value cannot be moved to a field that would show it; enter another value"


@dataclass(frozen=True, slots=True)
class Mask:
    """Hides the values of these field names, at any depth; case and dashes are ignored.

    Without names, fields named like a secret are hidden. A `SealedValue` is hidden under any name.
    """

    names: frozenset[str] | None = None

    @classmethod
    def from_names(cls, names: Iterable[str] | None) -> Self:
        given: Any = names
        if given is None:
            return cls()
        listed = list(cast("Iterable[Any]", given)) if isinstance(given, Iterable) else [given]
        if isinstance(given, str) or not all(isinstance(name, str) for name in listed):
            raise InvalidArgument("mask", "a list of field names", given)
        return cls(frozenset(map(_normalize, listed)))

    def __call__(self, value: Any) -> Any:
        """The value with secrets replaced by dots; parts without secrets are not copied."""
        return value if self.names is not None and not self.names else hide_secrets(value, self._is_secret)

    def mark(self, value: Any, path: str = "") -> Any:
        """The value with each secret replaced by a mark that holds its path, for a form."""
        match value:
            case MaskedSecret():
                return f"{HIDDEN} {path}"
            case Mapping():
                marked = dict(cast("Mapping[Any, Any]", value))
                for key, inner in marked.items():
                    below = _child_path(path, key)
                    marked[key] = (
                        f"{HIDDEN} {below}" if self._must_hide(key, inner) else self.mark(inner, below)
                    )
                return marked
            case str() if holds_url_password(value):
                return f"{HIDDEN} {path}"
            case list() | tuple():
                inside = enumerate(cast("Iterable[Any]", value))
                return [self.mark(inner, _child_path(path, place)) for place, inner in inside]
            case _:
                return value

    def restore(self, value: Any, original: Any) -> Any:
        """Replace the marks in a submitted form by the secrets of `original`.

        Raises InvalidInput for an unknown mark, and for one moved to a field that would show its value. No
        mark ever becomes part of an input.
        """
        kept, refused = dict(self._marks(original)), list[FieldError]()
        restored = self._restore(value, kept, refused)
        if refused:
            raise InvalidInput("the form has hidden values that cannot be restored", refused)
        return restored

    def _restore(
        self,
        value: Any,
        kept: Mapping[str, Any],
        refused: list[FieldError],
        path: str = "",
        *,
        is_hidden: bool = False,
    ) -> Any:
        match value:
            case str() if value in kept or (is_hidden and HIDDEN in value):
                # A sealed value and the password of a URL stay hidden under any name, so they may be moved.
                if value in kept and (is_hidden or _hides_itself(kept[value])):
                    return unmask_stored(kept[value])
                refused.append(FieldError(path, VALUE_MOVED if value in kept else VALUE_UNKNOWN, value))
                return value
            case Mapping():
                restored = dict(cast("Mapping[str, Any]", value))
                for key, inner in restored.items():
                    at, hides = f"{path}.{key}".lstrip("."), is_hidden or self._must_hide(key, inner)
                    restored[key] = self._restore(inner, kept, refused, at, is_hidden=hides)
                return restored
            case list():
                return [
                    self._restore(inner, kept, refused, f"{path}.{place}".lstrip("."), is_hidden=is_hidden)
                    for place, inner in enumerate(cast("list[Any]", value))
                ]
            case _:
                return value

    def _marks(self, value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
        """Each mark of a value, with the secret it stands for."""
        match value:
            case str() if _hides_itself(value):
                yield f"{HIDDEN} {path}", value
            case Mapping():
                for key, inner in cast("Mapping[Any, Any]", value).items():
                    if self._must_hide(key, inner):
                        yield f"{HIDDEN} {_child_path(path, key)}", inner
                    else:
                        yield from self._marks(inner, _child_path(path, key))
            case list() | tuple():
                for place, inner in enumerate(cast("Iterable[Any]", value)):
                    yield from self._marks(inner, _child_path(path, place))
            case _:
                pass

    def hide_in_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """A JSON Schema without defaults and examples of secrets: by type, by name, or inside a value."""
        return self._hide_in_schema(schema, schema.get("$defs", {}))

    def _hide_in_schema(self, schema: Any, definitions: Mapping[str, Any], name: str = "") -> Any:
        """`name` is the field that the schema is of, if it is of one."""
        if isinstance(schema, list):
            return [self._hide_in_schema(each, definitions) for each in cast("list[Any]", schema)]
        if not isinstance(schema, dict):
            return schema
        node = cast("dict[str, Any]", schema)
        hides_all = self._must_hide(name, "") or _may_hold_secret(node, definitions, set())
        hidden: dict[str, Any] = {}
        for word, value in node.items():
            if word in FIELDS and isinstance(value, dict):
                fields = cast("dict[str, Any]", value).items()
                hidden[word] = {
                    field: self._hide_in_schema(each, definitions, field) for field, each in fields
                }
            elif word not in SHOWN:
                hidden[word] = self._hide_in_schema(value, definitions)
            elif not hides_all and self(value) == value:
                hidden[word] = value
        return hidden

    def _must_hide(self, key: Any, value: Any) -> bool:
        is_sealed = isinstance(value, MaskedSecret)  # handled by its own case
        return not is_sealed and is_hidden(key, value, self._is_secret)

    def _is_secret(self, name: str) -> bool:
        return is_secret_name(name) if self.names is None else _normalize(name) in self.names


def _hides_itself(value: Any) -> bool:
    """Whether a value is hidden under any name."""
    return isinstance(value, MaskedSecret) or (isinstance(value, str) and holds_url_password(value))


def _may_hold_secret(schema: Any, definitions: Mapping[str, Any], seen: set[str]) -> bool:
    """Whether values of this JSON Schema may contain one of pydantic's secrets."""
    if isinstance(schema, list):
        return any(_may_hold_secret(each, definitions, seen) for each in cast("list[Any]", schema))
    if not isinstance(schema, dict):
        return False
    node = cast("dict[str, Any]", schema)
    if node.get("format") == "password" or node.get("writeOnly") is True:
        return True
    target = str(node.get("$ref", "")).rpartition("/")[2]
    if target in definitions and target not in seen:
        seen.add(target)
        if _may_hold_secret(definitions[target], definitions, seen):
            return True
    below = [each for word, each in node.items() if word not in SHOWN and word not in FIELDS]
    fields = [each for word in FIELDS[:2] for each in cast("dict[str, Any]", node.get(word, {})).values()]
    return any(_may_hold_secret(each, definitions, seen) for each in (*below, *fields))


def is_mark(text: str) -> bool:
    return text.startswith(HIDDEN)


def _child_path(path: str, key: Any) -> str:
    """Append a key as in a JSON Pointer, so that paths are unique."""
    return f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}"


def _normalize(name: str) -> str:
    return name.lower().replace("-", "_")
