"""Import optional dependencies on demand; name the extra to install when one is missing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from trax.errors import MissingExtra

if TYPE_CHECKING:
    from types import ModuleType


def import_extra(module: str, *, extra: str, feature: str) -> ModuleType:
    """Import `module`, which the feature `by` needs and the extra `extra` installs.

    The module may be one of Trax's own that imports the packages of the extra.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        absent = (missing.name or module).partition(".")[0]
        if absent == "trax":
            raise  # nothing to install: a bug in Trax itself
        raise MissingExtra(feature, extra, absent) from missing
