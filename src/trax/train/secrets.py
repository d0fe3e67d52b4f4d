"""Hide secrets in stored JSON: encrypt them with the keys of `$TRAX_SECRET_KEY`, or mask them.

A sealed secret is text: `v1:<key id>:<ciphertext>:<train> <place>`. Train and place are authenticated data,
so a ciphertext that is moved to another field or train cannot be decrypted there. The first key encrypts,
all keys decrypt.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import secrets
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, cast
from urllib.parse import quote, quote_plus

from pydantic import BaseModel, RootModel, Secret, SecretBytes, SecretStr
from pydantic_core import to_jsonable_python

from trax.errors import DefinitionError, FieldError, InvalidInput, MissingExtra, SecretUnreadable
from trax.masking import HIDDEN, NOT_STORED, SECRET_KEY, SHORTEST_SEARCHED, is_stored_secret

if TYPE_CHECKING:
    from collections.abc import Collection


VARIABLE: Final = "TRAX_SECRET_KEY"

EXTRA: Final = "secrets"

KEY_BYTES: Final = 32

SALT_BYTES: Final = 16

VERSION: Final = "v1"

SEAL_PATTERN: Final = re.compile(r"v1:([0-9a-f]{8}):([A-Za-z0-9_=-]+):(\S+) (.*)", re.DOTALL)


SECRET_TYPES: Final = (SecretStr, SecretBytes, Secret)

MISSING: Final = object()

SHORTEST_ENCODED: Final = 8
"""Shorter parts of base64 are not masked in text."""

SKIPPED_KEYS: Final = frozenset({"config", "default", "fields", "metadata"})

FIELDS: Final = frozenset({"model-fields", "dataclass-args", "typed-dict"})

NO_KEY: Final = (
    f"is a secret, which is stored only encrypted: install trax-scheduler[{EXTRA}] and set ${VARIABLE} "
    "(`trax secrets generate-key` creates a key), or let the train read it from a service or its environment"
)

LOST: Final = "is a secret that was not stored; provide it again"

UNKNOWN: Final = "its value is hidden and unknown here; provide it again"

RESERVED: Final = f"has a key {SECRET_KEY!r}, which is reserved for secrets; rename it"

SecretMode: TypeAlias = Literal["sealed", "deterministic", "masked", "marked"]
"""How secrets are written: `sealed` (encrypted), `masked`, or `deterministic`: encrypted, and equal
values give equal text.

`marked` secrets are plain text and never leave their codec.
"""

Writer: TypeAlias = Callable[[Any], Any]
"""Returns the JSON for a secret with this value."""

Reader: TypeAlias = Callable[[dict[str, Any], str, str], Any]
"""Returns the replacement for a JSON object, given its path and its place (the path without indexes)."""


class Secrets:
    """The secrets of one declared type, in JSON that only its codec sees and in JSON that is stored.

    Inside the codec a secret is an object under a random key, so that no input can imitate one.
    """

    def __init__(self, schema: Any, *, subject: str, role: str, trains: tuple[str, ...]) -> None:
        self._subject = subject
        self._role = role
        self._trains = trains or ("-",)
        self._mark = f"{SECRET_KEY} {token_hex(16)}"
        self.plain_fields = plain_fields(schema)
        """The top-level fields that cannot hold a secret."""

    def mark(self, raw: bytes, value: Any) -> bytes:
        """The JSON that pydantic wrote for a value, with its secrets inserted as marked objects."""
        document = write_secrets(json.loads(raw), value, lambda plain: {self._mark: plain})
        return _json(document).encode()

    def paths(self, marked_text: str) -> set[str]:
        """Where the secrets are in marked JSON."""
        found: set[str] = set()

        def note(node: dict[str, Any], path: str, _place: str) -> Any:
            if self._mark not in node:
                return node
            found.add(path)
            return None

        replace_objects(json.loads(marked_text), note)
        return found

    def protect(self, text: str, mode: SecretMode) -> str:
        """Encrypt or mask the secrets of marked JSON. Raises InvalidInput if a secret cannot be stored."""
        keyring, errors = None if mode == "masked" else load_keyring(), list[FieldError]()

        def write(node: dict[str, Any], path: str, place: str) -> Any:
            if SECRET_KEY in node:
                errors.append(FieldError(path, RESERVED, HIDDEN))
            if self._mark not in node:
                return node
            plain = node[self._mark]
            if isinstance(plain, str) and plain.startswith(HIDDEN):
                errors.append(FieldError(path, UNKNOWN, HIDDEN))
            elif keyring is not None:
                deterministic = mode == "deterministic"
                sealed = keyring.seal(
                    _json(plain), self._trains[0], self._full_place(place), deterministic=deterministic
                )
                return {SECRET_KEY: sealed}
            elif mode != "masked":
                errors.append(FieldError(path, NO_KEY, HIDDEN))
            return {SECRET_KEY: NOT_STORED}

        protected = _json(replace_objects(json.loads(text), write))
        if errors:
            raise InvalidInput(self._subject, errors)
        return protected

    def reveal(self, text: str | bytes) -> str | bytes:
        """Decrypt the secrets in JSON, for the type's validator. Raises SecretUnreadable if that fails."""
        decoded = text.decode() if isinstance(text, bytes) else text
        if SECRET_KEY not in decoded:
            return text
        errors = list[FieldError]()

        def read(node: dict[str, Any], path: str, place: str) -> Any:
            if self._mark in node:
                return node[self._mark]
            if not is_stored_secret(node):
                return node
            try:
                return json.loads(self._open(node[SECRET_KEY], self._full_place(place)))
            except SealError as error:
                errors.append(FieldError(path, str(error), HIDDEN))
                return None

        try:
            document = replace_objects(json.loads(decoded), read)
        except ValueError:
            return text  # the validator reports the invalid JSON
        if errors:
            raise SecretUnreadable(self._subject, errors)
        return _json(document)

    def field_error(self, path: str, message: str, value: Any) -> FieldError:
        """A field error that shows the value only if it cannot contain a secret."""
        is_plain = path.partition(".")[0] in self.plain_fields
        return FieldError(path, message, value if is_plain else HIDDEN)

    def _full_place(self, place: str) -> str:
        return join_path(self._role, place)

    def _open(self, stored: str, place: str) -> str:
        if stored == NOT_STORED:
            raise SealError(LOST)
        keyring = load_keyring()
        if keyring is None:
            raise SealError(describe_missing_key(Seal.parse(stored).key_id))
        return keyring.open(stored, self._trains, place)


def replace_objects(document: Any, change: Reader, path: str = "", place: str = "") -> Any:
    """A copy of a JSON document with objects replaced by `change`; replacements are not visited."""
    match document:
        case dict():
            node = cast("dict[str, Any]", document)
            changed = change(node, path, place)
            if changed is not node:
                return changed
            return {
                name: replace_objects(each, change, join_path(path, name), join_path(place, name))
                for name, each in node.items()
            }
        case list():
            items = enumerate(cast("list[Any]", document))
            return [
                replace_objects(each, change, join_path(path, str(number)), join_path(place, "*"))
                for number, each in items
            ]
        case _:
            return document


def _json(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def holds_secrets(schema: Any) -> bool:
    """Whether values of a type may contain secrets, by its pydantic schema."""
    match schema:
        case dict():
            node = cast("dict[str, Any]", schema)
            fields = node.get("fields")  # keyed by field name, which can be anything, even `default`
            named = list(cast("dict[str, Any]", fields).values()) if isinstance(fields, dict) else [fields]
            return any(holds_secrets(each) for name, each in node.items() if name not in SKIPPED_KEYS) or any(
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
    """The top-level fields of a type that cannot contain secrets: error messages may show their values."""
    if not isinstance(schema, dict):
        return frozenset()
    node = cast("dict[str, Any]", schema)
    if node.get("type") not in FIELDS:
        inner = (node[name] for name in ("schema", "lax_schema") if name in node)
        return next((names for each in inner if (names := plain_fields(each))), frozenset[str]())
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
        for key, inner in _children(value) or ():
            yield from secrets_of(key)
            yield from secrets_of(inner)


def secret_words_of(value: Any) -> frozenset[str]:
    """The secrets of a value as they could appear in text: plain, as repr, as JSON, in a URL, in base64."""
    spellings: set[str] = set()
    for secret in secrets_of(value):
        if isinstance(secret, bool):
            continue
        text = secret.decode(errors="replace") if isinstance(secret, bytes) else str(secret)
        spellings |= {
            text,
            repr(text)[1:-1],
            json.dumps(text)[1:-1],
            json.dumps(text, ensure_ascii=False)[1:-1],
            quote(text, errors="replace"),
            quote(text, safe="", errors="replace"),
            quote_plus(text, errors="replace"),
        }
        spellings |= _base64_words(secret if isinstance(secret, bytes) else text.encode(errors="replace"))
    return frozenset(word for word in spellings if len(word) >= SHORTEST_SEARCHED)


def _base64_words(secret: bytes) -> set[str]:
    """What is the same in base64 of any text with this secret in it, such as the header of a login."""
    words: set[str] = set()
    for before in range(3):
        first, last = -(-before * 8 // 6), (before + len(secret)) * 8 // 6
        for encode in (b64encode, urlsafe_b64encode):
            words.add(encode(b"\0" * before + secret)[first:last].decode())
    return {word for word in words if len(word) >= SHORTEST_ENCODED}


def hide_words(text: str, words: Iterable[str]) -> str:
    """Mask these words in a text, the longest first."""
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, HIDDEN)
    return text


class SecretPositionUnknown(ValueError):
    """A secret whose position in the JSON is unknown, because its type has a custom serializer."""

    def __init__(self, path: str, why: str = "has a custom serializer") -> None:
        super().__init__(f"{path or 'the value'} contains a secret and {why}; remove one of them")


def write_secrets(document: Any, value: Any, write: Writer, path: str = "") -> Any:
    """The JSON of a value, with each secret replaced by the result of `write`."""
    if isinstance(value, SECRET_TYPES):
        return write(to_jsonable_python(cast("Any", value).get_secret_value()))
    if next(secrets_of(value), MISSING) is MISSING:
        return document
    if isinstance(value, RootModel):
        return write_secrets(document, cast("Any", value).root, write, path)
    inside = _children(value) or []
    if isinstance(value, list | tuple | set | frozenset | Mapping):
        return _write_items(document, value, inside, write, path)
    if not isinstance(document, dict) or not dict(inside).keys() >= cast("dict[str, Any]", document).keys():
        raise SecretPositionUnknown(path)
    fields, named = cast("dict[str, Any]", document), dict(inside)
    return {
        name: write_secrets(each, named[name], write, join_path(path, name)) for name, each in fields.items()
    }


def _write_items(
    document: Any, value: Any, inside: list[tuple[str, Any]], write: Writer, path: str
) -> dict[str, Any] | list[Any]:
    """Match items by position: keys may be other than text, and a set is written in iteration order."""
    if not isinstance(document, dict | list) or len(cast("list[Any]", document)) != len(inside):
        raise SecretPositionUnknown(path)
    if isinstance(document, list):
        items = zip(cast("list[Any]", document), inside, strict=True)
        return [write_secrets(each, inner, write, join_path(path, "*")) for each, (_, inner) in items]
    if any(isinstance(key, SECRET_TYPES) for key in value):
        raise SecretPositionUnknown(path, "uses it as a key")
    named = zip(cast("dict[str, Any]", document).items(), inside, strict=True)
    return {
        name: write_secrets(each, inner, write, join_path(path, name)) for (name, each), (_, inner) in named
    }


def _children(value: Any) -> list[tuple[Any, Any]] | None:
    """The fields or items of a value, by name; None for a scalar."""
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


def join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


class SealError(Exception):
    """Why a sealed secret cannot be decrypted here; the message contains nothing of the secret."""


class Seal(NamedTuple):
    """The parts of a sealed secret: key id, ciphertext, train and place."""

    key_id: str
    ciphertext: bytes
    train: str
    place: str

    @classmethod
    def parse(cls, text: str) -> Seal:
        match = SEAL_PATTERN.fullmatch(text)
        try:
            if match is not None:
                return cls(match[1], urlsafe_b64decode(match[2]), match[3], match[4])
        except (NotBase64, ValueError):
            pass
        raise SealError("is not a secret that this version of Trax can read")

    @property
    def authentication_data(self) -> list[bytes]:
        return [f"trax {VERSION} {self.train} {self.place}".encode()]


class Keyring:
    """Seals and opens secrets. Keys are 32 random bytes in base64."""

    def __init__(self, keys: list[bytes]) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESSIV
            from cryptography.hazmat.primitives.hashes import SHA512
            from cryptography.hazmat.primitives.kdf.hkdf import HKDF
        except ModuleNotFoundError as missing:
            raise MissingExtra(f"${VARIABLE}", EXTRA, "cryptography") from missing

        def cipher(key: bytes) -> Any:
            return AESSIV(HKDF(SHA512(), 64, salt=None, info=b"trax secret v1").derive(key))

        self._ciphers = {key_id(key): cipher(key) for key in keys}
        self.primary_id = key_id(keys[0])

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(self._ciphers)

    def seal(self, plain: str, train: str, place: str, *, deterministic: bool = False) -> str:
        """Encrypt a text for its place; optionally deterministic: the same text gives the same ciphertext."""
        salt = bytes(SALT_BYTES) if deterministic else secrets.token_bytes(SALT_BYTES)
        return self._encrypt(salt + plain.encode(), train, place)

    def open(self, text: str, trains: Collection[str], place: str) -> str:
        """Decrypt a text that was sealed for this place of a train; `trains` are its name and aliases."""
        seal = Seal.parse(text)
        if seal.train not in trains or seal.place != place:
            raise SealError(
                f"was encrypted for {seal.place} of train {seal.train!r}, and can be read only there"
            )
        return self._decrypt(seal)[SALT_BYTES:].decode()

    def reseal(self, text: str) -> str:
        """Encrypt a secret again with the first key, unless it is already. A deterministic one stays so."""
        seal = Seal.parse(text)
        return (
            text
            if seal.key_id == self.primary_id
            else self._encrypt(self._decrypt(seal), seal.train, seal.place)
        )

    def _encrypt(self, salted: bytes, train: str, place: str) -> str:
        seal = Seal(self.primary_id, b"", train, place)
        ciphertext = self._ciphers[self.primary_id].encrypt(salted, seal.authentication_data)
        return f"{VERSION}:{self.primary_id}:{urlsafe_b64encode(ciphertext).decode()}:{train} {place}"

    def _decrypt(self, seal: Seal) -> bytes:
        from cryptography.exceptions import InvalidTag

        cipher = self._ciphers.get(seal.key_id)
        if cipher is None:
            raise SealError(describe_missing_key(seal.key_id))
        try:
            return cipher.decrypt(seal.ciphertext, seal.authentication_data)
        except (InvalidTag, ValueError):
            raise SealError(f"was modified after key {seal.key_id} encrypted it") from None


def load_keyring() -> Keyring | None:
    """The keys of this process; None if `$TRAX_SECRET_KEY` is not set.

    Raises DefinitionError for an invalid key, and MissingExtra if `cryptography` is not installed.
    """
    text = os.environ.get(VARIABLE, "").strip()
    return _keyring(text) if text else None


def generate_key() -> str:
    return urlsafe_b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def key_id(key: bytes) -> str:
    """The id of a key, stored with each secret. It reveals nothing of the key."""
    return sha256(b"trax secret key id\0" + key).hexdigest()[:8]


def describe_missing_key(wanted_id: str) -> str:
    return f"is encrypted with key {wanted_id}, which is missing from ${VARIABLE} here"


@lru_cache(maxsize=4)
def _keyring(text: str) -> Keyring:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return Keyring([_key(part, number, len(parts)) for number, part in enumerate(parts, 1)])


def _key(text: str, number: int, count: int) -> bytes:
    try:
        key = urlsafe_b64decode(text)
    except (NotBase64, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        which = "its value" if count == 1 else f"key {number} of {count}"
        raise DefinitionError(
            f"${VARIABLE}: {which} is not {KEY_BYTES} bytes in base64; run `trax secrets generate-key`"
        )
    return key
