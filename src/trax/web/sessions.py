"""Browser sessions: their cookies, and CSRF tokens."""

from __future__ import annotations

import hmac
import logging
import secrets
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit

from trax.app.app import Trax
from trax.app.sessions import SessionTimes, digest
from trax.records.audit import NewWebSession, SignIn
from trax.web.access import LOCAL, Access, Means, Role, User, Visitor

if TYPE_CHECKING:
    from starlette.datastructures import Headers
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
        return self.access.session_lifetime

    @property
    def times(self) -> SessionTimes:
        return SessionTimes(self.lifetime, self.access.session_idle_timeout)

    async def begin(self, request: Request, name: str, user: User) -> str:
        """Begin a session after a correct password; returns the secret for the cookie."""
        secret = secrets.token_urlsafe(32)
        new = _new_session(request, secret, name, user.role, SignIn.PASSWORD, _proof(secret, user))
        before = request.cookies.get(cookie_name(request))
        session = await self.app.sessions.begin(new, times=self.times, replaces=before)
        logger.info("session %s: user %s signed in from %s", session.id, name, new.address)
        return secret

    async def begin_by_link(self, request: Request, token: str) -> str | None:
        """Begin a session as local operator with a one-time link; None if the link is not valid."""
        secret = secrets.token_urlsafe(32)
        new = _new_session(request, secret, LOCAL, Role.OPERATOR, SignIn.LINK, "")
        session = await self.app.sessions.begin_by_link(token, new, times=self.times)
        if session is None:
            return None
        logger.info("session %s: signed in with a link from %s", session.id, new.address)
        return secret

    async def find_visitor(self, request: Request, *, is_use: bool) -> Visitor | None:
        """Find the user of the request's session cookie; a session that is no longer allowed is ended."""
        secret = request.cookies.get(cookie_name(request), "")
        if len(secret) != SECRET_CHARACTERS:
            return None
        stored = await self.app.sessions.find(secret, times=self.times, is_use=is_use)
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
    name = f"{COOKIE}_{port}" if port.isascii() and port.isdigit() else COOKIE
    return f"{_prefix(request)}{name}"


def browser_cookie_name(request: Request) -> str:
    return f"{_prefix(request)}{CSRF_COOKIE}"


def _prefix(request: Request) -> str:
    """With TLS, a prefix: other hosts of the domain, and pages without TLS, cannot set such a cookie.

    `__Host-` also needs the path `/`, so below a mount path it is `__Secure-`.
    """
    if request.scope.get("scheme") != "https":
        return ""
    return "__Secure-" if request.scope.get("root_path") else "__Host-"


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


def cookie(request: Request, name: str, value: str, *, seconds: int | None = None) -> str:
    """Format a cookie scoped to the mount path, HttpOnly and SameSite=Lax."""
    parts = [f"{name}={value}", f"Path={request.scope.get('root_path') or '/'}", "HttpOnly", "SameSite=Lax"]
    if seconds is not None:
        parts.append(f"Max-Age={seconds}")
    if request.scope.get("scheme") == "https":
        parts.append("Secure")
    return "; ".join(parts)


FIELD: Final = "csrf_token"

HEADER: Final = "x-csrf-token"

CSRF_COOKIE: Final = "trax_browser"
"""Identifies a browser without a session; it grants nothing by itself."""

PURPOSE: Final = "csrf"

SAME_ORIGIN_SITES: Final = ("same-origin", "none")

BROWSER_HEADERS: Final = ("origin", "referer", "sec-fetch-site", "cookie")


@dataclass(frozen=True, slots=True)
class Signer:
    """Creates and verifies CSRF tokens."""

    key: bytes = field(repr=False)

    @classmethod
    def of(cls, secret: str | None) -> Self:
        """Create a signer from a configured secret, or a random key, whose tokens other processes reject."""
        return cls(secrets.token_bytes(32) if secret is None else sha256(secret.encode()).digest())

    def token_for(self, bound_to: str) -> str:
        """The token for pages of one session, or of one browser without a session."""
        return hmac.new(self.key, f"{PURPOSE}\n{bound_to}".encode(), sha256).hexdigest()

    def is_token_for(self, bound_to: str, token: str) -> bool:
        return bool(bound_to) and hmac.compare_digest(self.token_for(bound_to).encode(), token.encode())


def new_browser_id() -> str:
    return secrets.token_urlsafe(18)


def is_from_browser(headers: Headers) -> bool:
    """Whether a browser may have sent this: browsers always send one of these headers, programs do not."""
    return any(sign in headers for sign in BROWSER_HEADERS)


def is_cross_origin(headers: Headers) -> bool:
    """Whether a page of another origin sent this, by headers that a page's scripts cannot set."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in SAME_ORIGIN_SITES
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != headers.get("host")
