"""What a train may be called: its name stands in every row, log line and address."""

from __future__ import annotations

from typing import Any

from trax.bounds import LONGEST_NAME
from trax.errors import DefinitionError, shown
from trax.records.metadata import ADMINISTRATIVE


def check_name(name: Any, what: str = "a train's name") -> None:
    if not isinstance(name, str) or not name:
        raise DefinitionError(f"{what} must be text and not empty (got {shown(name)})")
    if len(name) > LONGEST_NAME:
        raise DefinitionError(
            f"{what} has at most {LONGEST_NAME} characters (got {len(name)}: {shown(name)})"
        )
    if any(character.isspace() or not character.isprintable() for character in name):
        raise DefinitionError(f"{what} has no spaces or control characters (got {shown(name)})")


def check_not_reserved(name: str) -> None:
    if name.startswith(ADMINISTRATIVE):
        raise DefinitionError(
            f"names that start with {ADMINISTRATIVE!r} belong to Trax itself (got {name!r})"
        )
