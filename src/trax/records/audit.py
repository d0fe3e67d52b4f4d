"""What people and programs did to the railway, and who they were."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from trax.masking import hide_secrets

TARGETS_AT_MOST: Final = 100
"""How many ids one entry names; `count` says how many there were."""
BYTES_AT_MOST: Final = 8_192


class Via(StrEnum):
    """By which door an action came in."""

    DASHBOARD = "dashboard"
    API = "api"
    CLI = "cli"
    PYTHON = "python"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts, and by which door."""

    name: str
    via: Via = Via.PYTHON


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAudit:
    """An action to be written down. `restores` and `expects` are what an undo needs; None: there is none."""

    action: str
    noun: str
    ids: tuple[str, ...]
    count: int
    before: Any = None
    after: Any = None
    restores: Any = None
    expects: Any = None
    undoes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One action: who did it and when, to what, how that was before and after, and why."""

    id: int
    at: datetime
    actor: str
    via: Via
    action: str
    noun: str
    ids: tuple[str, ...]
    count: int
    before: Any = None
    after: Any = None
    reason: str | None = None
    undoes: int | None = None
    undone_by: int | None = None
    can_undo: bool = False


def kept(value: Any) -> str | None:
    """A value as JSON text that may be kept: without secrets, and not too long."""
    if value is None:
        return None
    written = json.dumps(hide_secrets(value), default=str, ensure_ascii=False).encode(errors="replace")
    return written.decode() if len(written) <= BYTES_AT_MOST else json.dumps({"_truncated": True})
