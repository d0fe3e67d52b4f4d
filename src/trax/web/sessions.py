"""Those who have logged in: a signed cookie says who, and until when. The server keeps nothing.

The signature covers the hash of the user's password, so a changed password ends every session of theirs.
"""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from trax.web.access import Access, Means, Visitor
from trax.web.signing import Signer

COOKIE: Final = "trax_session"
PURPOSE: Final = "session"
PARTS: Final = 4


@dataclass(frozen=True, slots=True)
class Sessions:
    """Writes and reads session cookies."""

    access: Access
    signer: Signer

    @property
    def lifetime(self) -> timedelta:
        return timedelta(hours=self.access.session_hours)

    def begun(self, name: str, now: datetime) -> str:
        """The cookie of somebody whose password was right."""
        ends = int((now + self.lifetime).timestamp())
        said = f"{urlsafe_b64encode(name.encode()).decode()}.{ends}.{secrets.token_urlsafe(12)}"
        return f"{said}.{self.signer.sign(PURPOSE, self._signed(said, name))}"

    def visitor(self, cookie: str, now: datetime) -> Visitor | None:
        """Whose cookie this is, if we wrote it, it has not expired, and they are still among the users."""
        said, _, signature = cookie.rpartition(".")
        words = said.split(".")
        if len(words) != PARTS - 1:
            return None
        try:
            name, ends = urlsafe_b64decode(words[0]).decode(), datetime.fromtimestamp(int(words[1]), UTC)
        except (ValueError, OverflowError, OSError):
            return None
        user = self.access.users.get(name)
        if user is None or not self.signer.has_signed(PURPOSE, self._signed(said, name), signature):
            return None
        return Visitor(name, user.role, Means.SESSION, session=cookie) if now < ends else None

    def _signed(self, said: str, name: str) -> str:
        return f"{said}\n{self.access.users[name].password}"
