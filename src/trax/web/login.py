"""Signing in, with a password or with a one-time link."""

from __future__ import annotations

import logging
from hashlib import sha256
from typing import TYPE_CHECKING

from trax.web.passwords import CHECKS, TooManyChecks, is_outdated
from trax.web.problems import Refusal, problem
from trax.web.room import room_of
from trax.web.throttle import Attempt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from trax.web.access import User

logger = logging.getLogger(__name__)


async def log_in(request: Request, name: str, password: str) -> str:
    """The session of whoever has this name and password, or a refusal that does not say which is wrong."""
    room, address = room_of(request), request.client.host if request.client else ""
    attempt = Attempt.of(name, address)
    if wait := room.throttle.reserve(attempt):
        raise refusal_to_wait("too many attempts to log in", wait)
    await room.throttle.slow_down(attempt)
    user = room.access.users.get(name)
    configured = (user or _stand_in(name, room.access.users)).password
    try:
        is_right = await CHECKS.is_right(password, configured, address=attempt.address.address)
    except TooManyChecks:
        room.throttle.withdraw(attempt)
        raise refusal_to_wait("too many people log in at this moment", 1.0) from None
    if user is None or not is_right:
        logger.warning("a log-in from %s failed: %s", address, "wrong password" if user else "unknown name")
        raise Refusal(problem(401, "the name or the password is wrong", code="wrong_password"))
    room.throttle.forgive(attempt)
    if is_outdated(user.password):
        logger.warning(
            "the password hash of %s was made at a lower cost than today's: configure a new one, "
            "made with `trax dashboard --hash-password`",
            name,
        )
    return await room.sessions.begin(request, name, user)


async def log_in_by_link(request: Request, token: str) -> str | None:
    """The session that a one-time link begins; None if it was used already, or is too old."""
    room, address = room_of(request), request.client.host if request.client else ""
    if wait := room.throttle.wait_for_token(address, token):
        raise refusal_to_wait("too many wrong links were opened", wait)
    session = await room.sessions.begin_by_link(request, token)
    if session is None:
        room.throttle.note_wrong_token(address, token)
    return session


def refusal_to_wait(why: str, wait: float) -> Refusal:
    seconds = str(int(wait) + 1)
    return Refusal(problem(429, f"{why}; try again in {seconds} s"), {"Retry-After": seconds})


def safe_next(path: str | None) -> str:
    """Where to go after logging in: a path of ours, never another host."""
    if not path or not path.startswith("/") or path.startswith(("//", "/\\")) or not path.isprintable():
        return "/"
    return path


def _stand_in(name: str, users: Mapping[str, User]) -> User:
    """Somebody whose password is checked instead of that of an unknown name, always the same for one name.

    So an unknown name takes as long as one of the known ones, whatever their hashes cost.
    """
    if not users:
        raise Refusal(problem(401, "nobody can log in here: no users are configured", code="wrong_password"))
    known = sorted(users)
    chosen = int.from_bytes(sha256(name.encode("utf-8", "replace")).digest()[:8]) % len(known)
    return users[known[chosen]]
