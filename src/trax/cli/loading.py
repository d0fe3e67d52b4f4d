"""From `module:app` or `file.py:app` to the app itself."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trax.errors import DefinitionError, did_you_mean
from trax.host.app import Trax

if TYPE_CHECKING:
    from types import ModuleType

VARIABLE: Final = "TRAX_APP"
FORMS: Final = "name it as module:app or file.py:app"


def load_app(given: str | None) -> Trax:
    """The app that was named, or the one in the environment."""
    module, attribute, place = _located(app_name(given))
    return _app_in(module, attribute, place)


def load_object(name: str) -> Any:
    """Whatever goes by that name: another library's app, say."""
    module, attribute, place = _located(name)
    if not hasattr(module, attribute):
        raise DefinitionError(
            f"{place} has nothing named {attribute!r}{did_you_mean(attribute, vars(module))}"
        )
    return getattr(module, attribute)


def app_name(given: str | None) -> str:
    name = given or os.environ.get(VARIABLE)
    if not name:
        raise DefinitionError(f"which app? {FORMS}, or set ${VARIABLE}")
    return name


def _located(name: str) -> tuple[ModuleType, str, str]:
    place, colon, attribute = name.rpartition(":")
    if not colon or not place or not attribute:
        raise DefinitionError(f"{name!r} names no app; {FORMS}")
    module = _from_file(Path(place)) if place.endswith(".py") else _from_module(place)
    return module, attribute, place


def _from_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise DefinitionError(f"there is no file {str(file)!r}")
    sys.path.insert(0, str(file.parent.resolve()))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None  # noqa: S101 - a path that ends in .py has one
    assert spec.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def _from_module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name is None or not (name == missing.name or name.startswith(f"{missing.name}.")):
            raise  # the app's own import is broken, which is another story
        raise DefinitionError(f"there is no module {name!r} here or on the Python path") from None


def _app_in(module: ModuleType, attribute: str, place: str) -> Trax:
    found: Any = getattr(module, attribute, None)
    if isinstance(found, Trax):
        return found
    apps = [name for name, value in vars(module).items() if isinstance(value, Trax)]
    hint = did_you_mean(attribute, apps) or (f"; there is {place}:{apps[0]}" if apps else "")
    raise DefinitionError(f"{place} has no app named {attribute!r}{hint}")
