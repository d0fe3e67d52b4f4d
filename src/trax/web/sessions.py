"""Browsers that are signed in: a cookie holds a random secret, and a row knows whose it is.

A row that began with a password holds a proof made from the hash that is configured for it. So a password or
a role that has changed, and a user who was removed, end the session; and a row that somebody else wrote into
the table is worth nothing.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from trax.host.app import Trax
from trax.host.sessions import digest
from trax.records.web_session import NewWebSession, SignIn
from trax.web.access import LOCAL, Access, Means, Role, User, Visitor
from trax.web.cookies import cookie

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from trax.store.web_sessions import StoredSession

logger = logging.getLogger(__name__)

COOKIE: Final = "trax_session"
SECRET_CHARACTERS: Final = 43
LONGEST_ADDRESS: Final = 64
LONGEST_USER_AGENT: Final = 200


@dataclass(frozen=True, slots=True)
class BrowserSessions:
    """Begins sessions, and finds whose a cookie is."""

    app: Trax
    access: Access

    @property
    def lifetime(self) -> timedelta:
        return timedelta(hours=self.access.session_hours)

    async def begin(self, request: Request, name: str, user: User) -> str:
        """Sign a user in whose password was right; gives the secret for the cookie."""
        secret = secrets.token_urlsafe(32)
        new = _new_session(request, secret, name, user.role, SignIn.PASSWORD, _proof(secret, user))
        before = request.cookies.get(cookie_name(request))
        begun = await self.app.sessions.begin(new, lifetime=self.lifetime, replaces=before)
        logger.info("%s signed in from %s as session %s", name, new.address, begun.id)
        return secret

    async def begin_by_link(self, request: Request, token: str) -> str | None:
        """Sign whoever opened a one-time link in as a local operator; None if the link is not good."""
        secret = secrets.token_urlsafe(32)
        new = _new_session(request, secret, LOCAL, Role.OPERATOR, SignIn.LINK, "")
        begun = await self.app.sessions.begin_by_link(token, new, lifetime=self.lifetime)
        if begun is None:
            return None
        logger.info("a link was opened from %s and began session %s", new.address, begun.id)
        return secret

    async def visitor(self, request: Request) -> Visitor | None:
        """Whose session the cookie of this request is. One that may not go on is ended."""
        secret = request.cookies.get(cookie_name(request), "")
        if len(secret) != SECRET_CHARACTERS:
            return None
        stored = await self.app.sessions.find(secret)
        if stored is None:
            return None
        session, role = stored.session, self._role(stored, secret)
        if role is not None:
            return Visitor(session.user, role, Means.SESSION, session=secret, session_id=session.id)
        await self.app.sessions.end([session.id])
        text = "session %s of %s was ended: who may enter has changed since it began"
        logger.warning(text, session.id, session.user)
        return None

    def _role(self, stored: StoredSession, secret: str) -> Role | None:
        """The role of a session, as who may enter is configured now; None: it counts no more."""
        if stored.session.means is SignIn.LINK:
            return None if self.access.is_configured else Role.OPERATOR
        user = self.access.users.get(stored.session.user)
        if user is None or not hmac.compare_digest(_proof(secret, user).encode(), stored.proof.encode()):
            return None
        return user.role


def cookie_name(request: Request) -> str:
    """Browsers share cookies between all ports of a host, and one machine may serve several dashboards."""
    port = request.headers.get("host", "").rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isascii() and port.isdigit() else COOKIE


def set_cookie(request: Request, answer: Response, secret: str, lifetime: timedelta) -> None:
    seconds = int(lifetime.total_seconds())
    answer.headers.append("Set-Cookie", cookie(request, cookie_name(request), secret, seconds=seconds))


def delete_cookie(request: Request, answer: Response) -> None:
    answer.headers.append("Set-Cookie", cookie(request, cookie_name(request), "", seconds=0))


def _new_session(
    request: Request, secret: str, name: str, role: Role, means: SignIn, proof: str
) -> NewWebSession:
    return NewWebSession(
        key=digest(secret),
        user=name,
        role=role.value,
        means=means,
        proof=proof,
        address=(request.client.host if request.client else "")[:LONGEST_ADDRESS],
        user_agent=request.headers.get("user-agent", "")[:LONGEST_USER_AGENT],
    )


def _proof(secret: str, user: User) -> str:
    said = f"{digest(secret)}\n{user.role}"
    return hmac.new(user.password.encode(), said.encode(), sha256).hexdigest()
