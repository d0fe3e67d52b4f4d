"""Validate names of trains, manifests and batches: they appear in rows, log lines and URLs."""

from __future__ import annotations

from typing import Any

from trax.bounds import LONGEST_NAME
from trax.errors import DefinitionError, format_value
from trax.records.metadata import ADMINISTRATIVE_PREFIX


def check_name(name: Any, what: str = "a train's name") -> None:
    if not isinstance(name, str) or not name:
        raise DefinitionError(f"{what} must be non-empty text (got {format_value(name)})")
    if len(name) > LONGEST_NAME:
        raise DefinitionError(
            f"{what} must have at most {LONGEST_NAME} characters (got {len(name)}: {format_value(name)})"
        )
    if any(character.isspace() or not character.isprintable() for character in name):
        raise DefinitionError(
            f"{what} must not contain spaces or control characters (got {format_value(name)})"
        )


def check_not_reserved(name: str) -> None:
    if name.startswith(ADMINISTRATIVE_PREFIX):
        raise DefinitionError(f"names that start with {ADMINISTRATIVE_PREFIX!r} are reserved (got {name!r})")
