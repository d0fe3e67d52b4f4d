"""Browser sessions: a cookie holds a random secret, and a row in the database its user.

The row of a password session also holds a proof computed from the configured password hash. Therefore a
changed password or role, or a removed user, ends the session, and a row inserted by someone else is invalid.
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
    """Begins sessions, and finds the session of a request."""

    app: Trax
    access: Access

    @property
    def lifetime(self) -> timedelta:
        return timedelta(hours=self.access.session_hours)

    async def begin(self, request: Request, name: str, user: User) -> str:
        """Begin a session after a correct password; returns the secret for the cookie."""
        secret = secrets.token_urlsafe(32)
        new = _new_session(request, secret, name, user.role, SignIn.PASSWORD, _proof(secret, user))
        before = request.cookies.get(cookie_name(request))
        session = await self.app.sessions.begin(new, lifetime=self.lifetime, replaces=before)
        logger.info("session %s: user %s signed in from %s", session.id, name, new.address)
        return secret

    async def begin_by_link(self, request: Request, token: str) -> str | None:
        """Begin a session as local operator with a one-time link; None if the link is not valid."""
        secret = secrets.token_urlsafe(32)
        new = _new_session(request, secret, LOCAL, Role.OPERATOR, SignIn.LINK, "")
        session = await self.app.sessions.begin_by_link(token, new, lifetime=self.lifetime)
        if session is None:
            return None
        logger.info("session %s: signed in with a link from %s", session.id, new.address)
        return secret

    async def find_visitor(self, request: Request) -> Visitor | None:
        """Find the user of the request's session cookie; a session that is no longer allowed is ended."""
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
        text = "session %s: ended, because the access of user %s has changed since sign-in"
        logger.warning(text, session.id, session.user)
        return None

    def _role(self, stored: StoredSession, secret: str) -> Role | None:
        """The role of a session under the current configuration; None if it is no longer valid."""
        if stored.session.means is SignIn.LINK:
            return None if self.access.is_configured else Role.OPERATOR
        user = self.access.users.get(stored.session.user)
        if user is None or not hmac.compare_digest(_proof(secret, user).encode(), stored.proof.encode()):
            return None
        return user.role


def cookie_name(request: Request) -> str:
    """Include the port, because browsers share cookies between all ports of a host."""
    port = request.headers.get("host", "").rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isascii() and port.isdigit() else COOKIE


def set_cookie(request: Request, response: Response, secret: str, lifetime: timedelta) -> None:
    seconds = int(lifetime.total_seconds())
    response.headers.append("Set-Cookie", cookie(request, cookie_name(request), secret, seconds=seconds))


def delete_cookie(request: Request, response: Response) -> None:
    response.headers.append("Set-Cookie", cookie(request, cookie_name(request), "", seconds=0))


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
    message = f"{digest(secret)}\n{user.role}"
    return hmac.new(user.password.encode(), message.encode(), sha256).hexdigest()
