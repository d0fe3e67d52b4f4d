"""Encode inputs and outputs as JSON text and decode them, and detect what JSON cannot represent."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, get_origin, overload

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.dataclasses import is_pydantic_dataclass
from pydantic.errors import PydanticUserError

from trax.bounds import load_json
from trax.errors import DefinitionError, FieldError, InvalidInput, SecretUnreadable
from trax.train.annotations import is_typed_dict, name_of
from trax.train.seal import seal_or_mask_fields, seal_paths
from trax.train.secrets import SecretMode, Secrets, holds_secrets, secret_words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trax.train.train import Train


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


T = TypeVar("T")

# What pydantic raises for a value that it cannot encode or decode; its own two errors are ValueErrors. The
# others come from code of the type itself that got an unexpected value: `__init__(self, **data)` of a model
# cannot be called with a key `self`, and a validator may access what is missing.
CODEC_ERRORS = (ValueError, RecursionError, TypeError, AttributeError, LookupError, ArithmeticError)


class Codec(Generic[T]):
    """Encodes and decodes values of one declared type. JSON keys are the Python field names, not aliases."""

    @overload
    def __init__(
        self, declared: type[T], *, owner: str, role: str = ..., trains: tuple[str, ...] = ...
    ) -> None: ...
    @overload
    def __init__(
        self: Codec[Any], declared: Any, *, owner: str, role: str = ..., trains: tuple[str, ...] = ...
    ) -> None: ...
    def __init__(
        self, declared: Any, *, owner: str, role: str = "input", trains: tuple[str, ...] = ()
    ) -> None:
        """`owner` and `role` start error messages: "train 'greet': invalid input".

        `trains` are the name and the aliases of the train that secrets are encrypted for.
        """
        adapter = _adapter(declared, f"the {role} of {owner}")
        traits = traits_of(adapter.core_schema)
        self._subject = f"{owner}: invalid {role}"
        self._declared = declared
        self._is_strict = not is_typed_dict(declared)
        self._record = _record_of(declared)
        self.is_of_nothing = declared is None or declared is type(None)
        """Whether None is the only value."""
        self._may_hold_floats = traits.may_hold_floats
        self._field_count = len(getattr(self._record, "model_fields", ()))
        self._is_trusted = _validates_itself(self._record) and not traits.must_be_read_back
        self._serializer = adapter.serializer
        self._to_json: Callable[..., bytes] = adapter.serializer.to_json
        self._to_python = adapter.serializer.to_python
        self._from_json = adapter.validator.validate_json
        self._from_python = adapter.validator.validate_python
        self._secrets: Secrets | None = None
        if holds_secrets(adapter.core_schema):
            self._secrets = Secrets(adapter.core_schema, subject=self._subject, role=role, trains=trains)
            self._to_json = self._to_marked_json

    @property
    def holds_secrets(self) -> bool:
        """Whether its values may contain a SecretStr or another pydantic secret."""
        return self._secrets is not None

    @property
    def plain_fields(self) -> frozenset[str] | None:
        """The top-level fields that cannot hold a secret; None: the whole value cannot."""
        return None if self._secrets is None else self._secrets.plain_fields

    def seal_plain(self, text: str, train: str) -> str | None:
        """The JSON of an input with its secrets in plain text encrypted, or masked if there is no key.

        None if it has none. Where it cannot be decoded, every value is one that could be a secret.
        """
        if self._secrets is None:
            return None
        try:
            paths = self._secrets.paths(self.encode(self.decode(text), secrets="marked"))
        except SecretUnreadable:  # it is encrypted
            return None
        except InvalidInput:
            return self._seal_all(text, self._secrets.plain_fields, train)
        return seal_paths(text, paths, train)

    @staticmethod
    def _seal_all(text: str, plain: frozenset[str], train: str) -> str | None:
        try:
            document = load_json(text)
        except ValueError:
            return None
        sealed = seal_or_mask_fields(document, plain, train)
        return None if sealed == document else json.dumps(sealed, ensure_ascii=False, separators=(",", ":"))

    def encode(self, value: T, *, secrets: SecretMode = "sealed") -> str:
        """Encode a value as JSON text. Raises InvalidInput naming every invalid field.

        By default secrets are encrypted, and refused if no key is configured; or they are masked.
        """
        if self._secrets is not None and secrets != "marked":
            return self._secrets.protect(self.encode(value, secrets="marked"), secrets)
        if value is None and self.is_of_nothing:
            return "null"
        if type(value) is not self._record:
            return self._validate_and_encode(value)
        try:
            raw = self._to_json(value, by_alias=False, round_trip=True, warnings="error")
        except CODEC_ERRORS:
            return self._validate_and_encode(value)
        if self._may_hold_floats and (b"null" in raw or b"NaN" in raw or b"Infinity" in raw):
            self._refuse_unwritable(value)
        if not self._is_trusted or (self._field_count and len(value.__dict__) < self._field_count):
            self.decode(raw)  # a model built by `model_construct` may lack fields
        return raw.decode()

    def encode_all(self, values: Sequence[T]) -> list[str]:
        """Encode each value as `encode` does. Small values that are all valid cost a third as much.

        Most of the cost of `to_json` is then `warnings="error"`: here one call checks all values.
        """
        if self._secrets is not None or not self._is_trusted or set(map(type, values)) != {self._record}:
            return [self.encode(value) for value in values]
        try:
            raw = self._list_to_json(values, by_alias=False, round_trip=True, warnings="error")
        except CODEC_ERRORS:
            return [self.encode(value) for value in values]
        may_be_unwritable = self._may_hold_floats and any(
            word in raw for word in (b"null", b"NaN", b"Infinity")
        )
        may_lack_fields = self._field_count and min(len(vars(value)) for value in values) < self._field_count
        if may_be_unwritable or may_lack_fields:
            return [self.encode(value) for value in values]
        to_json = self._to_json
        return [to_json(value, by_alias=False, round_trip=True).decode() for value in values]

    @cached_property
    def _list_to_json(self) -> Callable[..., bytes]:
        return _adapter(list[self._declared], self._subject).serializer.to_json

    def decode(self, text: str | bytes) -> T:
        """Decode JSON text. Raises InvalidInput naming every invalid field."""
        try:
            text = text if self._secrets is None else self._secrets.reveal(text)
            return self._from_json(text, by_alias=False, by_name=True)
        except CODEC_ERRORS as error:
            raise self._refusal(error, text) from None

    def copy(self, value: T) -> T:
        """The value after encoding and decoding, secrets included."""
        return self.decode(self.encode(value, secrets="marked"))

    def secret_words(self, value: T) -> frozenset[str]:
        """The secrets of a value as they could appear in text, for masking."""
        return frozenset() if self._secrets is None else secret_words_of(value)

    def _validate_and_encode(self, value: Any) -> str:
        """The slow path: validate the value, encode the result, and verify that it can be decoded."""
        try:
            validated = self._validate(value)
            self._refuse_unwritable(validated)
            raw = self._to_json(validated, by_alias=False, round_trip=True, warnings="error")
        except CODEC_ERRORS as error:
            raise self._refusal(error, value) from None
        self.decode(raw)
        return raw.decode()

    def _validate(self, value: Any) -> Any:
        if self._record is None:
            return self._from_python(value, strict=self._is_strict, by_alias=False, by_name=True)
        if isinstance(value, Mapping):
            return self._from_python(dict(cast("Mapping[Any, Any]", value)), by_alias=False, by_name=True)
        if type(value) is not self._record:
            field_error = FieldError if self._secrets is None else self._secrets.field_error
            raise InvalidInput(
                self._subject, [field_error("", self._type_mismatch(value, self._record), value)]
            )
        self._refuse_unwritable(value)
        return self.decode(self._to_json(value, by_alias=False, round_trip=True, warnings="none"))

    def _refuse_unwritable(self, value: Any) -> None:
        plain = self._to_python(value, by_alias=False, round_trip=True, warnings="none")
        errors = list(find_unwritable(plain))
        if errors:
            raise InvalidInput(self._subject, errors)

    def _refusal(self, error: Exception, value: Any) -> InvalidInput:
        if isinstance(error, InvalidInput):
            return error
        field_error = FieldError if self._secrets is None else self._secrets.field_error
        if isinstance(error, ValidationError):
            details: list[Any] = list(error.errors(include_url=False, include_context=False))
            errors = [
                field_error(".".join(map(str, detail["loc"])), detail["msg"], detail["input"])
                for detail in details
            ]
            return InvalidInput(self._subject, errors)
        message = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        return InvalidInput(self._subject, [field_error("", message, value)])

    def _to_marked_json(self, value: Any, **options: Any) -> bytes:
        assert self._secrets is not None  # noqa: S101 - only used for types with secrets
        return self._secrets.mark(self._serializer.to_json(value, **options), value)

    def _type_mismatch(self, value: Any, record: type) -> str:
        expected, got = name_of(self._declared), name_of(type(value))
        if isinstance(value, record):
            return f"expected {expected} itself, got its subclass {got}, whose own fields would be lost"
        return f"expected {expected} or a mapping of its fields, got {got}"


def input_codec(train: Train[Any, Any]) -> Codec[Any]:
    """Raises DefinitionError for an input type that cannot be represented as JSON."""
    return Codec(train.input_type, owner=f"train {train.name!r}", trains=(train.name, *train.options.aliases))


def output_codec(train: Train[Any, Any]) -> Codec[Any]:
    names = (train.name, *train.options.aliases)
    return Codec(train.output_type, owner=f"train {train.name!r}", role="output", trains=names)


def _adapter(declared: Any, place: str) -> TypeAdapter[Any]:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(declared)
        adapter.rebuild(raise_errors=True)
    except (PydanticUserError, NameError, TypeError) as error:
        problem = str(error).splitlines()[0].partition(". Set `")[0]  # pydantic's advice is for models
        raise DefinitionError(f"{place} is {name_of(declared)}, which cannot be JSON: {problem}") from error
    return adapter


def _record_of(declared: Any) -> type[Any] | None:
    """The class of a model or dataclass; None for mappings, lists and scalars."""
    kind: Any = get_origin(declared) or declared
    is_model = inspect.isclass(kind) and issubclass(kind, BaseModel)
    return kind if is_model or dataclasses.is_dataclass(kind) else None


def _validates_itself(record: type[Any] | None) -> bool:
    return record is not None and (issubclass(record, BaseModel) or is_pydantic_dataclass(record))


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
