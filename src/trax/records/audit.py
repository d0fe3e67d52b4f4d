"""The audit log: which operator or program did what, and when; and who is signed in to the dashboard."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from trax.masking import hide_secrets

MAX_IDS: Final = 100
"""The maximum number of ids in one audit entry; `count` is the real number."""
MAX_BYTES: Final = 8_192
DECLARED_SETTINGS: Final = "settings.declare"
"""The action of entries that say which limits servers have from code; these entries are never deleted."""

RETENTION: Final = "audit_retention_period"
"""The setting whose changes are never deleted from the audit log."""


class Via(StrEnum):
    """The interface through which an action was made."""

    DASHBOARD = "dashboard"
    API = "api"
    CLI = "cli"
    PYTHON = "python"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts, and through which interface."""

    name: str
    via: Via = Via.PYTHON


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAudit:
    """An audit entry to be written. `restores` and `expects` are what an undo needs; None: no undo."""

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
    """One action: when, by whom, on what, the values before and after, and the reason."""

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


def to_stored_json(value: Any) -> str | None:
    """A value as JSON text for the audit log: without secrets; a marker if it is too long."""
    if value is None:
        return None
    encoded = json.dumps(hide_secrets(value), default=str, ensure_ascii=False).encode(errors="replace")
    return encoded.decode() if len(encoded) <= MAX_BYTES else json.dumps({"_truncated": True})


class SignIn(StrEnum):
    """How the user signed in."""

    PASSWORD = "password"  # noqa: S105 - a word, not a secret
    LINK = "link"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSession:
    """One signed-in browser. `last_seen_at` is written at most once a minute."""

    id: int
    user: str
    role: str
    means: SignIn
    address: str
    user_agent: str
    created_at: datetime
    last_seen_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWebSession:
    """A session to be written. It does not contain the secret: `key` is a digest of it.

    `proof` binds the session to the password used to sign in; it cannot be computed from the tables.
    """

    key: str
    user: str
    role: str
    means: SignIn
    proof: str
    address: str
    user_agent: str
