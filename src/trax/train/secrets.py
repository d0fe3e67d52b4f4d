"""`SecretStr`, `SecretBytes` and `Secret[…]` in inputs and outputs: found in types, hidden in JSON.

In JSON a secret is an object with one key, `{"$secret": "v1:…"}`, or `{"$secret": "masked"}` where it was not
kept. Whether a type has any is found out once; whoever has none pays nothing.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from secrets import token_hex
from typing import Any, Final, Literal, TypeAlias, cast

from pydantic import BaseModel, RootModel, Secret, SecretBytes, SecretStr
from pydantic_core import to_jsonable_python

from trax.errors import FieldError, InvalidInput, SecretUnreadable
from trax.masking import HIDDEN, NOT_KEPT, SECRET, is_stored_secret
from trax.train.keyring import EXTRA, VARIABLE, Seal, Unreadable, load_keyring, missing_key

SECRET_TYPES: Final = (SecretStr, SecretBytes, Secret)
MISSING: Final = object()
SHORTEST_SEARCHED: Final = 4
"""Shorter ones stand in many a text by chance."""
ASIDE: Final = frozenset({"config", "default", "fields", "metadata"})
FIELDS: Final = frozenset({"model-fields", "dataclass-args", "typed-dict"})

NO_KEY: Final = (
    f"is a secret, and secrets are kept only encrypted: install trax-scheduler[{EXTRA}] and set ${VARIABLE} "
    "(`trax secrets generate-key` makes a key), or let the train read it from a service or its environment"
)
LOST: Final = "is a secret that was not kept when this was recorded; give it again"
UNKNOWN: Final = "its value is hidden and not known here; give it again"
RESERVED: Final = f"has a key {SECRET!r}, which stands for secrets; give it another name"

Keeping: TypeAlias = Literal["sealed", "steady", "masked", "marked"]
"""How secrets are written: encrypted, encrypted so that the same one looks the same, or not at all.

Marked ones are plain, and never leave their codec.
"""
Writer: TypeAlias = Callable[[Any], Any]
"""What stands in JSON for a secret of this value."""
Reader: TypeAlias = Callable[[dict[str, Any], str, str], Any]
"""What stands for an object of a document: given with its path, and with its place, which has no numbers."""


class Secrets:
    """The secrets of one declared type, in JSON that only its codec sees and in JSON that is kept.

    In between, each is an object under a key that nobody else can know: no input can pretend to be one.
    """

    def __init__(self, schema: Any, *, subject: str, role: str, trains: tuple[str, ...]) -> None:
        self._subject = subject
        self._role = role
        self._trains = trains or ("-",)
        self._mark = f"{SECRET} {token_hex(16)}"
        self._plain_fields = plain_fields(schema)

    def mark(self, raw: bytes, value: Any) -> bytes:
        """The JSON that pydantic wrote of a value, with its secrets in it."""
        document = write_secrets(json.loads(raw), value, lambda plain: {self._mark: plain})
        return _json(document).encode()

    def keep(self, text: str, keeping: Keeping) -> str:
        """Marked JSON as it may be kept. Raises InvalidInput where a secret cannot be."""
        keyring, refused = None if keeping == "masked" else load_keyring(), list[FieldError]()

        def write(found: dict[str, Any], path: str, place: str) -> Any:
            if SECRET in found:
                refused.append(FieldError(path, RESERVED, HIDDEN))
            if self._mark not in found:
                return found
            plain = found[self._mark]
            if isinstance(plain, str) and plain.startswith(HIDDEN):
                refused.append(FieldError(path, UNKNOWN, HIDDEN))
            elif keyring is not None:
                is_steady = keeping == "steady"
                sealed = keyring.seal(_json(plain), self._trains[0], self._in(place), steady=is_steady)
                return {SECRET: sealed}
            elif keeping != "masked":
                refused.append(FieldError(path, NO_KEY, HIDDEN))
            return {SECRET: NOT_KEPT}

        kept = _json(walk(json.loads(text), write))
        if refused:
            raise InvalidInput(self._subject, refused)
        return kept

    def reveal(self, text: str | bytes) -> str | bytes:
        """JSON for the type's own validator. Raises SecretUnreadable for what cannot be read here."""
        spelled = text.decode() if isinstance(text, bytes) else text
        if SECRET not in spelled:
            return text
        refused = list[FieldError]()

        def read(found: dict[str, Any], path: str, place: str) -> Any:
            if self._mark in found:
                return found[self._mark]
            if not is_stored_secret(found):
                return found
            try:
                return json.loads(self._open(found[SECRET], self._in(place)))
            except Unreadable as why:
                refused.append(FieldError(path, str(why), HIDDEN))
                return None

        try:
            document = walk(json.loads(spelled), read)
        except ValueError:
            return text  # the validator says what is wrong with it
        if refused:
            raise SecretUnreadable(self._subject, refused)
        return _json(document)

    def refusal(self, path: str, message: str, value: Any) -> FieldError:
        """What is wrong with a field, with its value only if that cannot be a secret."""
        is_plain = path.partition(".")[0] in self._plain_fields
        return FieldError(path, message, value if is_plain else HIDDEN)

    def _in(self, place: str) -> str:
        return below(self._role, place)

    def _open(self, stored: str, place: str) -> str:
        if stored == NOT_KEPT:
            raise Unreadable(LOST)
        keyring = load_keyring()
        if keyring is None:
            raise Unreadable(missing_key(Seal.parse(stored).key_id))
        return keyring.open(stored, self._trains, place)


def walk(document: Any, change: Reader, path: str = "", place: str = "") -> Any:
    """A JSON document with each of its objects as `change` makes it; what it replaces is not looked into."""
    match document:
        case dict():
            found = cast("dict[str, Any]", document)
            changed = change(found, path, place)
            if changed is not found:
                return changed
            return {
                name: walk(each, change, below(path, name), below(place, name))
                for name, each in found.items()
            }
        case list():
            items = enumerate(cast("list[Any]", document))
            return [walk(each, change, below(path, str(number)), below(place, "*")) for number, each in items]
        case _:
            return document


def _json(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def holds_secrets(schema: Any) -> bool:
    """Whether values of a type may hold secrets, by its pydantic schema."""
    match schema:
        case dict():
            node = cast("dict[str, Any]", schema)
            fields = node.get("fields")  # by name, and a field may be called anything, `default` for one
            named = list(cast("dict[str, Any]", fields).values()) if isinstance(fields, dict) else [fields]
            return any(holds_secrets(each) for name, each in node.items() if name not in ASIDE) or any(
                map(holds_secrets, named)
            )
        case list() | tuple() | set() | frozenset():
            return any(map(holds_secrets, cast("Iterable[Any]", schema)))
        case type():
            return issubclass(schema, SECRET_TYPES)
        case _:
            name: str = getattr(schema, "__qualname__", "")
            return getattr(schema, "__module__", "") == "pydantic.types" and "secret" in name.lower()


def plain_fields(schema: Any) -> frozenset[str]:
    """The fields at the top of a type that cannot hold secrets: their values may stand in messages."""
    if not isinstance(schema, dict):
        return frozenset()
    node = cast("dict[str, Any]", schema)
    if node.get("type") not in FIELDS:
        below = (node[name] for name in ("schema", "lax_schema") if name in node)
        return next((found for each in below if (found := plain_fields(each))), frozenset[str]())
    fields = node.get("fields")
    named = (
        cast("dict[str, Any]", fields).items()
        if isinstance(fields, dict)
        else [(each["name"], each) for each in cast("list[Any]", fields or [])]
    )
    return frozenset(
        name for name, each in named if not holds_secrets(each) and "definition-ref" not in str(each)
    )


def secrets_of(value: Any) -> Iterator[Any]:
    """The secrets in a value, at any depth."""
    if isinstance(value, SECRET_TYPES):
        yield cast("Any", value).get_secret_value()
    else:
        for key, inner in _inside(value) or ():
            yield from secrets_of(key)
            yield from secrets_of(inner)


def words_of(value: Any) -> frozenset[str]:
    """How the secrets of a value would be spelled in a text that gave them away."""
    spelled: set[str] = set()
    for secret in secrets_of(value):
        if isinstance(secret, bool):
            continue
        text = secret.decode(errors="replace") if isinstance(secret, bytes) else str(secret)
        spelled |= {
            text,
            repr(text)[1:-1],
            json.dumps(text)[1:-1],
            json.dumps(text, ensure_ascii=False)[1:-1],
        }
    return frozenset(word for word in spelled if len(word) >= SHORTEST_SEARCHED)


def hide_words(text: str, words: Iterable[str]) -> str:
    """A text with dots in the place of these words, the longest first."""
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, HIDDEN)
    return text


class Misplaced(ValueError):
    """A secret whose place in the JSON is not known, since its type writes itself in its own way."""

    def __init__(self, path: str, why: str = "has a serializer of its own") -> None:
        super().__init__(f"{path or 'the value'} holds a secret and {why}; take one of them away")


def write_secrets(document: Any, value: Any, write: Writer, path: str = "") -> Any:
    """The JSON of a value with what `write` makes of each secret in its place."""
    if isinstance(value, SECRET_TYPES):
        return write(to_jsonable_python(cast("Any", value).get_secret_value()))
    if next(secrets_of(value), MISSING) is MISSING:
        return document
    if isinstance(value, RootModel):
        return write_secrets(document, cast("Any", value).root, write, path)
    inside = _inside(value) or []
    if isinstance(value, list | tuple | set | frozenset | Mapping):
        return _write_items(document, value, inside, write, path)
    if not isinstance(document, dict) or not dict(inside).keys() >= cast("dict[str, Any]", document).keys():
        raise Misplaced(path)
    fields, named = cast("dict[str, Any]", document), dict(inside)
    return {name: write_secrets(one, named[name], write, below(path, name)) for name, one in fields.items()}


def _write_items(
    document: Any, value: Any, inside: list[tuple[str, Any]], write: Writer, path: str
) -> dict[str, Any] | list[Any]:
    """Keys may be other than text, and a set has no order: but what is written stands as it was read."""
    if not isinstance(document, dict | list) or len(cast("list[Any]", document)) != len(inside):
        raise Misplaced(path)
    if isinstance(document, list):
        items = zip(cast("list[Any]", document), inside, strict=True)
        return [write_secrets(one, inner, write, below(path, "*")) for one, (_, inner) in items]
    if any(isinstance(key, SECRET_TYPES) for key in value):
        raise Misplaced(path, "has it as a key")
    named = zip(cast("dict[str, Any]", document).items(), inside, strict=True)
    return {name: write_secrets(one, inner, write, below(path, name)) for (name, one), (_, inner) in named}


def _inside(value: Any) -> list[tuple[Any, Any]] | None:
    """What a value consists of, by name; None for one that has no parts."""
    match value:
        case RootModel():
            return [("", cast("Any", value).root)]
        case BaseModel():
            return [*value.__dict__.items(), *(value.model_extra or {}).items()]
        case Mapping():
            return list(cast("Mapping[Any, Any]", value).items())
        case list() | tuple() | set() | frozenset():
            return [(str(place), each) for place, each in enumerate(cast("Iterable[Any]", value))]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return [(each.name, getattr(value, each.name)) for each in dataclasses.fields(value)]
        case _:
            return None


def below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
