"""The `extract` step: read one attribute of a value in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trax.errors import WiringError
from trax.train.declared import name_of
from trax.train.keys import key_of
from trax.train.memory import MISSING
from trax.train.scope import field_hints

if TYPE_CHECKING:
    from trax.train.scope import Scope


class Extract:
    """Reads the first public attribute of `source` that is declared as exactly `target`."""

    __slots__ = ("_attribute", "_scope", "name", "source", "target")

    def __init__(self, source: type, target: Any, scope: Scope) -> None:
        self.name = f"extract({name_of(source)}, {name_of(target)})"
        self.source = source
        self.target = target
        self._scope = scope
        self._attribute: Any = MISSING

    async def __call__(self, source: Any) -> Any:
        """Async only to avoid a thread for reading an attribute; it never awaits."""
        attribute = self.attribute
        value = None if attribute is None else getattr(source, attribute, None)
        if value is None:
            raise WiringError(
                f"{self.name} found no {name_of(self.target)} in {name_of(self.source)}: it takes the first "
                "public attribute declared with exactly that type, and its value must not be None"
            )
        return value

    @property
    def attribute(self) -> str | None:
        """Name of the attribute; resolved on first use, since names in annotations may be defined later."""
        if self._attribute is MISSING:
            key, hints = key_of(self.target), field_hints(self.source, self._scope)
            public = (name for name in hints if not name.startswith("_"))
            self._attribute = next((name for name in public if key_of(hints[name]) == key), None)
            self._scope.close()
        return self._attribute
