"""How another process finds a train: by a name at the top level of a module that both can import."""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from trax.errors import DefinitionError
from trax.train import Registry, Train

if TYPE_CHECKING:
    from collections.abc import Iterator

MAIN = "__main__"
ALIAS = "__mp_main__"


class TrainReference(NamedTuple):
    """The name of a train, and the module and name of a variable that holds the train or its app."""

    train: str
    module: str
    name: str

    def resolve(self) -> Train[Any, Any]:
        """Import the module and return the train."""
        module = importlib.import_module(self.module)
        found: Any = getattr(module, self.name, None)
        if isinstance(found, Train):
            return cast("Train[Any, Any]", found)
        trains = _trains_of(found)
        if trains is None:
            raise DefinitionError(
                f"train {self.train!r} has cpu=True, but {self.module}.{self.name} does not exist when "
                "another process imports the module; define it outside `if __name__ == '__main__':`"
            )
        return trains.get(self.train)


@cache
def reference_to(train: Train[Any, Any]) -> TrainReference:
    """The variable that holds this train, or its app."""
    for module, name, value in _globals():
        if value is train:
            return TrainReference(train.name, module, name)
    for module, name, value in _globals():
        trains = _trains_of(value)
        if trains is not None and any(each is train for each in trains):
            return TrainReference(train.name, module, name)
    raise DefinitionError(
        f"train {train.name!r} has cpu=True, so another process must be able to import it; assign it, or "
        "its app, to a name at the top level of a module"
    )


def _globals() -> Iterator[tuple[str, str, Any]]:
    """Every name of every module; those of `__main__` last, since importing a script again costs more."""
    for module_name, module in sorted(sys.modules.items(), key=lambda item: item[0] == MAIN):
        if isinstance(module, ModuleType) and module_name != ALIAS:  # pyright: ignore[reportUnnecessaryIsInstance]
            for name, value in list(vars(module).items()):
                yield module_name, name, value


def _trains_of(holder: Any) -> Registry | None:
    """The trains of an app. Reads only `__dict__`: attribute access may run code of other objects."""
    with suppress(AttributeError, TypeError):
        trains = object.__getattribute__(holder, "__dict__").get("trains")
        return trains if isinstance(trains, Registry) else None
    return None
