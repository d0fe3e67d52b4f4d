"""From `module:app` or `file.py:app` to the app itself."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trax
from trax.cli import BrokenApp
from trax.errors import DefinitionError, TraxError, did_you_mean
from trax.host.app import Trax

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import ModuleType

VARIABLE: Final = "TRAX_APP"
FORMS: Final = "name it as module:app or file.py:app"
LIBRARIES: Final = (
    *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")),
    str(Path(trax.__file__).parent),
)
"""Code that is not the user's: what goes wrong there is told by the line that led there."""


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
    with _errors_placed(file):
        spec.loader.exec_module(module)
    return module


def _from_module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    with _errors_placed(name):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as missing:
            if missing.name is None or not (name == missing.name or name.startswith(f"{missing.name}.")):
                raise  # the app's own import is broken, which is another story
            absent = missing
    raise DefinitionError(f"there is no module {name!r} here or on the Python path") from absent


@contextmanager
def _errors_placed(module: Path | str) -> Generator[None]:
    """Name the line of the user's code at which the import of their module failed."""
    try:
        yield
    except (Exception, SystemExit) as error:
        said = str(error) if isinstance(error, TraxError) else _one_line(error)
        raise BrokenApp(f"{_place_of(error) or module}: {said}") from error


def _one_line(error: BaseException) -> str:
    said = " ".join((error.msg if isinstance(error, SyntaxError) else str(error)).split())
    return f"{type(error).__name__}{said and ': '}{said}; --debug shows the traceback"


def _place_of(error: BaseException) -> str | None:
    """The innermost line that is the user's own; of a syntax error, the line that cannot be read."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return _place(error.filename, error.lineno)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith((*LIBRARIES, "<"))]
    return _place(own[-1].filename, own[-1].lineno or 1) if own else None


def _place(filename: str, line: int) -> str:
    file = Path(filename)
    shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    return f"{shown}:{line}"


def _app_in(module: ModuleType, attribute: str, place: str) -> Trax:
    found: Any = getattr(module, attribute, None)
    if isinstance(found, Trax):
        return found
    apps = [name for name, value in vars(module).items() if isinstance(value, Trax)]
    hint = did_you_mean(attribute, apps) or (f"; there is {place}:{apps[0]}" if apps else "")
    raise DefinitionError(f"{place} has no app named {attribute!r}{hint}")
