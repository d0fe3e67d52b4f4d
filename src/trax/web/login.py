"""Sign in with a password or a one-time link."""

from __future__ import annotations

import logging
from hashlib import sha256
from typing import TYPE_CHECKING

from trax.web.access import CHECKS, TooManyChecks, is_outdated
from trax.web.context import context_of
from trax.web.problems import Refusal, problem
from trax.web.throttle import Attempt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from trax.web.access import User

logger = logging.getLogger(__name__)


async def log_in(request: Request, name: str, password: str) -> str:
    """Verify name and password and begin a session; the error does not say which of them is wrong."""
    context, address = context_of(request), request.client.host if request.client else ""
    attempt = Attempt.of(name, address)
    if wait := context.throttle.reserve(attempt):
        raise throttle_refusal("too many login attempts", wait)
    await context.throttle.slow_down(attempt)
    user = context.access.users.get(name)
    configured = (user or _decoy_user(name, context.access.users)).password
    try:
        is_right = await CHECKS.is_right(password, configured, address=attempt.address.address)
    except TooManyChecks:
        context.throttle.withdraw(attempt)
        raise throttle_refusal("too many logins at the same time", 1.0) from None
    if user is None or not is_right:
        logger.warning("login from %s failed: %s", address, "wrong password" if user else "unknown name")
        raise Refusal(problem(401, "wrong name or password", code="wrong_password"))
    context.throttle.forgive(attempt)
    if is_outdated(user.password):
        logger.warning(
            "user %s: the password hash has a lower cost than the current default; "
            "configure a new one made with `trax dashboard --hash-password`",
            name,
        )
    return await context.sessions.begin(request, name, user)


async def log_in_by_link(request: Request, token: str) -> str | None:
    """Begin a session with a one-time link; None if it was already used or has expired."""
    context, address = context_of(request), request.client.host if request.client else ""
    if wait := context.throttle.wait_for_token(address, token):
        raise throttle_refusal("too many invalid links", wait)
    session = await context.sessions.begin_by_link(request, token)
    if session is None:
        context.throttle.note_wrong_token(address, token)
    return session


def throttle_refusal(why: str, wait: float) -> Refusal:
    seconds = str(int(wait) + 1)
    return Refusal(problem(429, f"{why}; try again in {seconds} s"), {"Retry-After": seconds})


def safe_next(path: str | None) -> str:
    """The path to open after login: always one of ours, never another host."""
    if not path or not path.startswith("/") or path.startswith(("//", "/\\")) or not path.isprintable():
        return "/"
    return path


def _decoy_user(name: str, users: Mapping[str, User]) -> User:
    """A configured user to verify against for an unknown name, always the same one for one name.

    Thus an unknown name takes as long as a known one, whatever the cost of the hashes.
    """
    if not users:
        raise Refusal(problem(401, "login is not available: no users are configured", code="wrong_password"))
    known = sorted(users)
    index = int.from_bytes(sha256(name.encode("utf-8", "replace")).digest()[:8]) % len(known)
    return users[known[index]]
