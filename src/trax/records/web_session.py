"""Sessions of users who are signed in to the dashboard."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


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
