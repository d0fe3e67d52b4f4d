"""Sessions of people who are signed in to the dashboard."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class SignIn(StrEnum):
    """How a session began."""

    PASSWORD = "password"  # noqa: S105 - a word, not a secret
    LINK = "link"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSession:
    """One browser that is signed in. `last_seen_at` is written at most once a minute."""

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
    """A session to be written. The secret itself is not here: `key` is its digest.

    `proof` ties a session to the password it began with; whoever reads the tables cannot make another one.
    """

    key: str
    user: str
    role: str
    means: SignIn
    proof: str
    address: str
    user_agent: str
