"""Values that are nobody's business, hidden wherever inputs and outputs are shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, cast

from trax.errors import FieldError, InvalidInput
from trax.masking import HIDDEN, SealedValue, hide_secrets, is_hidden, is_secret_name, uncover_stored

NOT_KEPT: Final = "its value is hidden and not known here; type it again"
MOVED: Final = "a hidden value can be kept only under a name that hides it; type another value"


@dataclass(frozen=True, slots=True)
class Mask:
    """Hides what stands under these names, at any depth. Case and dashes do not matter.

    Without names, what is named like a secret is hidden. A `SealedValue` is hidden under any name.
    """

    names: frozenset[str] | None = None

    @classmethod
    def over(cls, names: Iterable[str] | None) -> Self:
        return cls(None if names is None else frozenset(map(_plain, names)))

    def __call__(self, value: Any) -> Any:
        """The same value, with a few dots where it must not be read. Nothing is copied without need."""
        return value if self.names is not None and not self.names else hide_secrets(value, self._is_secret)

    def mark(self, value: Any, path: str = "") -> Any:
        """The same value with marks in place of what is hidden, for a form: each says where it stood."""
        match value:
            case SealedValue():
                return f"{HIDDEN} {path}"
            case Mapping():
                marked = dict(cast("Mapping[Any, Any]", value))
                for key, inner in marked.items():
                    below = _below(path, key)
                    marked[key] = f"{HIDDEN} {below}" if self._hides(key, inner) else self.mark(inner, below)
                return marked
            case list() | tuple():
                inside = enumerate(cast("Iterable[Any]", value))
                return [self.mark(inner, _below(path, place)) for place, inner in inside]
            case _:
                return value

    def restore(self, value: Any, original: Any) -> Any:
        """What a form stands for that was filled with the marks of `original`: what they hid is kept.

        Raises InvalidInput for a mark that nothing is known of, and for one that was moved to where its value
        could be read: no mark gets into an input.
        """
        kept, refused = dict(self._hidden(original)), list[FieldError]()
        restored = self._put_back(value, kept, refused)
        if refused:
            raise InvalidInput("the form has hidden values that are not known", refused)
        return restored

    def _put_back(
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
                # A stored secret can be read by its own field alone, wherever it is put.
                if value in kept and (is_hidden or isinstance(kept[value], SealedValue)):
                    return uncover_stored(kept[value])
                refused.append(FieldError(path, MOVED if value in kept else NOT_KEPT, value))
                return value
            case Mapping():
                restored = dict(cast("Mapping[str, Any]", value))
                for key, inner in restored.items():
                    at, hides = f"{path}.{key}".lstrip("."), is_hidden or self._hides(key, inner)
                    restored[key] = self._put_back(inner, kept, refused, at, is_hidden=hides)
                return restored
            case list():
                return [
                    self._put_back(inner, kept, refused, f"{path}.{place}".lstrip("."), is_hidden=is_hidden)
                    for place, inner in enumerate(cast("list[Any]", value))
                ]
            case _:
                return value

    def _hidden(self, value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
        """Each mark of a value, and what it hides."""
        match value:
            case SealedValue():
                yield f"{HIDDEN} {path}", value
            case Mapping():
                for key, inner in cast("Mapping[Any, Any]", value).items():
                    if self._hides(key, inner):
                        yield f"{HIDDEN} {_below(path, key)}", inner
                    else:
                        yield from self._hidden(inner, _below(path, key))
            case list() | tuple():
                for place, inner in enumerate(cast("Iterable[Any]", value)):
                    yield from self._hidden(inner, _below(path, place))
            case _:
                pass

    def _hides(self, key: Any, value: Any) -> bool:
        is_sealed = isinstance(value, SealedValue)  # it speaks for itself
        return not is_sealed and is_hidden(key, value, self._is_secret)

    def _is_secret(self, name: str) -> bool:
        return is_secret_name(name) if self.names is None else _plain(name) in self.names


def is_mark(text: str) -> bool:
    return text.startswith(HIDDEN)


def _below(path: str, key: Any) -> str:
    """As in a JSON Pointer, so that no two places have the same."""
    return f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}"


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")
