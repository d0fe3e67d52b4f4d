"""Load an app from `module:app` or `file.py:app`."""

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
from trax.app.app import Trax
from trax.engine.open_store import refuse_opening
from trax.errors import AppImportError, DefinitionError, TraxError, did_you_mean
from trax.train.annotations import format_place

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import ModuleType

APP_VARIABLE: Final = "TRAX_APP"
IMPORTER: Final = "a trax command"
FORMS: Final = "give module:app or file.py:app"
LIBRARIES: Final = (
    *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")),
    str(Path(trax.__file__).parent),
)
"""Folders of code that is not the user's; errors there are reported at the user's line that called it."""


def load_app(argument: str | None) -> Trax:
    """The named app, or the one of $TRAX_APP."""
    module, attribute, place = _import_target(app_name(argument))
    return _app_in(module, attribute, place)


def load_object(name: str) -> Any:
    """Any object by this name, such as a Celery app."""
    module, attribute, place = _import_target(name)
    if not hasattr(module, attribute):
        raise DefinitionError(
            f"{place} has no attribute {attribute!r}{did_you_mean(attribute, vars(module))}"
        )
    return getattr(module, attribute)


def app_name(argument: str | None) -> str:
    name = argument or os.environ.get(APP_VARIABLE)
    if not name:
        raise DefinitionError(f"no app given; {FORMS}, or set ${APP_VARIABLE}")
    return name


def app_of_environment() -> str | None:
    return os.environ.get(APP_VARIABLE) or None


def _import_target(name: str) -> tuple[ModuleType, str, str]:
    place, colon, attribute = name.rpartition(":")
    if not colon or not place or not attribute:
        raise DefinitionError(f"invalid app {name!r}; {FORMS}")
    module = _from_file(Path(place)) if place.endswith(".py") else _from_module(place)
    return module, attribute, place


def _from_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise DefinitionError(f"file {str(file)!r} does not exist")
    sys.path.insert(0, str(file.parent.resolve()))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None  # noqa: S101 - a path that ends in .py has one
    assert spec.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    with refuse_opening(IMPORTER), _locate_errors(file):
        spec.loader.exec_module(module)
    return module


def _from_module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    with refuse_opening(IMPORTER), _locate_errors(name):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as missing:
            if missing.name is None or not (name == missing.name or name.startswith(f"{missing.name}.")):
                raise  # an import inside the app's module failed
            cause = missing
    raise DefinitionError(f"module {name!r} was not found here or on the Python path") from cause


@contextmanager
def _locate_errors(module: Path | str) -> Generator[None]:
    """Report an import error with the line of the user's code that raised it."""
    try:
        yield
    except (Exception, SystemExit) as error:
        text = str(error) if isinstance(error, TraxError) else _one_line(error)
        raise AppImportError(f"{_error_location(error) or module}: {text}") from error


def _one_line(error: BaseException) -> str:
    text = " ".join((error.msg if isinstance(error, SyntaxError) else str(error)).split())
    return f"{type(error).__name__}{text and ': '}{text}; --debug shows the traceback"


def _error_location(error: BaseException) -> str | None:
    """The innermost line of the user's code; for a syntax error, its line."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return format_place(error.filename, error.lineno)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith((*LIBRARIES, "<"))]
    return format_place(own[-1].filename, own[-1].lineno or 1) if own else None


def _app_in(module: ModuleType, attribute: str, place: str) -> Trax:
    found: Any = getattr(module, attribute, None)
    if isinstance(found, Trax):
        return found
    apps = [name for name, value in vars(module).items() if isinstance(value, Trax)]
    hint = did_you_mean(attribute, apps) or (f"; there is {place}:{apps[0]}" if apps else "")
    raise DefinitionError(f"{place} has no app named {attribute!r}{hint}")
