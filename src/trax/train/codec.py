"""Inputs and outputs as JSON text, checked by their declared type on the way in and out.

JSON cannot carry everything Python can. What would come back changed is refused where it enters: numbers
that are not finite, text that is no Unicode, an instance of a subclass whose own fields would be lost.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, get_origin, overload

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.dataclasses import is_pydantic_dataclass
from pydantic.errors import PydanticUserError

from trax.errors import DefinitionError, FieldError, InvalidInput
from trax.train.declared import is_typed_dict, name_of
from trax.train.fidelity import traits_of, unwritable
from trax.train.secrets import Keeping, Secrets, holds_secrets, words_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from trax.train.train import Train

T = TypeVar("T")

# What pydantic raises for a value it cannot write or read; its own two errors are ValueErrors. The others are
# raised by code of the type that was given what it did not expect: `__init__(self, **data)` of a model cannot
# be called with a key `self`, and a validator may look for what is not there.
REJECTED = (ValueError, RecursionError, TypeError, AttributeError, LookupError, ArithmeticError)


class Codec(Generic[T]):
    """Writes and reads values of one declared type. Keys are the field names as written in Python."""

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
        """`owner` and `role` name the place in messages: "train 'greet'" refused its "input".

        `trains` are the names that secrets are encrypted for: the first one, and those that it had before.
        """
        adapter = _adapter(declared, f"the {role} of {owner}")
        traits = traits_of(adapter.core_schema)
        self._subject = f"{owner} refused its {role}"
        self._declared = declared
        self._record = _record_of(declared)
        self._is_nothing = declared is None or declared is type(None)
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
        """Whether its values may hold a SecretStr, or another secret of pydantic."""
        return self._secrets is not None

    def encode(self, value: T, *, secrets: Keeping = "sealed") -> str:
        """The value as JSON text, or InvalidInput naming every field its type refuses.

        Secrets in it are encrypted, which is refused where there is no key; or else they are masked.
        """
        if self._secrets is not None and secrets != "marked":
            return self._secrets.keep(self.encode(value, secrets="marked"), secrets)
        if value is None and self._is_nothing:
            return "null"
        if type(value) is not self._record:
            return self._normalised(value)
        try:
            raw = self._to_json(value, by_alias=False, round_trip=True, warnings="error")
        except REJECTED:
            return self._normalised(value)
        if self._may_hold_floats and (b"null" in raw or b"NaN" in raw or b"Infinity" in raw):
            self._refuse_unwritable(value)
        if not self._is_trusted or (self._field_count and len(value.__dict__) < self._field_count):
            self.decode(raw)  # a model put together by `model_construct` may lack fields
        return raw.decode()

    def decode(self, text: str | bytes) -> T:
        """The value that JSON text stands for, or InvalidInput naming every field its type refuses."""
        try:
            text = text if self._secrets is None else self._secrets.reveal(text)
            return self._from_json(text, by_alias=False, by_name=True)
        except REJECTED as error:
            raise self._refusal(error, text) from None

    def copy(self, value: T) -> T:
        """The value as it would be read, secrets and all. Nothing of it is kept."""
        return self.decode(self.encode(value, secrets="marked"))

    def secret_words(self, value: T) -> frozenset[str]:
        """How the secrets of a value would be spelled in a text that gave them away."""
        return frozenset() if self._secrets is None else words_of(value)

    def _normalised(self, value: Any) -> str:
        """The careful way: check the value, write what the check made of it, and see that it can be read."""
        try:
            checked = self._checked(value)
            self._refuse_unwritable(checked)
            raw = self._to_json(checked, by_alias=False, round_trip=True, warnings="error")
        except REJECTED as error:
            raise self._refusal(error, value) from None
        self.decode(raw)
        return raw.decode()

    def _checked(self, value: Any) -> Any:
        if self._record is None:
            return self._from_python(
                value, strict=not is_typed_dict(self._declared), by_alias=False, by_name=True
            )
        if isinstance(value, Mapping):
            return self._from_python(dict(cast("Mapping[Any, Any]", value)), by_alias=False, by_name=True)
        if type(value) is not self._record:
            refused = FieldError if self._secrets is None else self._secrets.refusal
            raise InvalidInput(self._subject, [refused("", self._misfit(value, self._record), value)])
        self._refuse_unwritable(value)
        return self.decode(self._to_json(value, by_alias=False, round_trip=True, warnings="none"))

    def _refuse_unwritable(self, value: Any) -> None:
        plain = self._to_python(value, by_alias=False, round_trip=True, warnings="none")
        errors = list(unwritable(plain))
        if errors:
            raise InvalidInput(self._subject, errors)

    def _refusal(self, error: Exception, value: Any) -> InvalidInput:
        refused = FieldError if self._secrets is None else self._secrets.refusal
        if isinstance(error, ValidationError):
            found: list[Any] = list(error.errors(include_url=False, include_context=False))
            each = [refused(".".join(map(str, one["loc"])), one["msg"], one["input"]) for one in found]
            return InvalidInput(self._subject, each)
        message = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        return InvalidInput(self._subject, [refused("", message, value)])

    def _to_marked_json(self, value: Any, **how: Any) -> bytes:
        assert self._secrets is not None  # noqa: S101 - it is only used with them
        return self._secrets.mark(self._serializer.to_json(value, **how), value)

    def _misfit(self, value: Any, record: type) -> str:
        expected, got = name_of(self._declared), name_of(type(value))
        if isinstance(value, record):
            return f"expected {expected} itself, got its subclass {got}, whose own fields would be lost"
        return f"expected {expected} or a mapping of its fields, got {got}"


def input_codec(train: Train[Any, Any]) -> Codec[Any]:
    """Raises DefinitionError for an input type that cannot travel as JSON."""
    return Codec(train.input_type, owner=f"train {train.name!r}", trains=(train.name, *train.options.aliases))


def output_codec(train: Train[Any, Any]) -> Codec[Any]:
    names = (train.name, *train.options.aliases)
    return Codec(train.output_type, owner=f"train {train.name!r}", role="output", trains=names)


def _adapter(declared: Any, place: str) -> TypeAdapter[Any]:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(declared)
        adapter.rebuild(raise_errors=True)
    except (PydanticUserError, NameError, TypeError) as error:
        problem = str(error).splitlines()[0]
        raise DefinitionError(f"{place} is {name_of(declared)}, which cannot be JSON: {problem}") from error
    return adapter


def _record_of(declared: Any) -> type[Any] | None:
    """The class of models and dataclasses; None for types that come as mappings, lists or scalars."""
    kind: Any = get_origin(declared) or declared
    is_model = inspect.isclass(kind) and issubclass(kind, BaseModel)
    return kind if is_model or dataclasses.is_dataclass(kind) else None


def _validates_itself(record: type[Any] | None) -> bool:
    return record is not None and (issubclass(record, BaseModel) or is_pydantic_dataclass(record))
