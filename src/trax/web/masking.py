"""Values that are nobody's business, hidden wherever inputs and outputs are shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, cast

HIDDEN: Final = "••••••"
USUAL: Final = (
    "access_token",
    "api_key",
    "apikey",
    "authorization",
    "client_secret",
    "passwd",
    "password",
    "private_key",
    "refresh_token",
    "secret",
    "token",
)
"""What is hidden where nobody says anything else."""


@dataclass(frozen=True, slots=True)
class Mask:
    """Hides what stands under these names, at any depth. Case and dashes do not matter."""

    names: frozenset[str]

    @classmethod
    def over(cls, names: Iterable[str]) -> Self:
        return cls(frozenset(map(_plain, names)))

    def __call__(self, value: Any) -> Any:
        """The same value, with a few dots where it must not be read. Nothing is copied without need."""
        if not self.names:
            return value
        match value:
            case Mapping():
                items = cast("Mapping[Any, Any]", value).items()
                return {key: HIDDEN if self._hides(key, inner) else self(inner) for key, inner in items}
            case list() | tuple():
                return [self(inner) for inner in cast("Iterable[Any]", value)]
            case _:
                return value

    def _hides(self, key: Any, value: Any) -> bool:
        """Whether there was a value stays visible: that one is missing is worth knowing."""
        return value is not None and isinstance(key, str) and _plain(key) in self.names


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")
