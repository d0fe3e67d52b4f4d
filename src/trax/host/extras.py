"""Parts that need more than the core installs: imported when they are asked for, and missed by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from trax.errors import MissingExtra

if TYPE_CHECKING:
    from types import ModuleType


def needed(module: str, *, extra: str, by: str) -> ModuleType:
    """Import what `by`, some words for a person, cannot do without; `extra` is what installs it.

    The module may be one of ours that imports the packages of the extra.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        absent = (missing.name or module).partition(".")[0]
        if absent == "trax":
            raise  # nothing to install: this is a mistake in our own code
        raise MissingExtra(by, extra, absent) from missing
