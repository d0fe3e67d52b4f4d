"""Logging in and out."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Final

from trax.web import sessions
from trax.web.cookies import cookie
from trax.web.passwords import hashed, matches
from trax.web.problems import Refusal, problem
from trax.web.room import room_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from trax.web.access import User

CHECKING: Final = ThreadPoolExecutor(2, thread_name_prefix="trax-passwords")
"""Checking a password is dear on purpose; guessing must not take the whole machine."""


async def log_in(request: Request, name: str, password: str) -> str:
    """The session of whoever has this name and password, or a refusal that does not say which is wrong."""
    room = room_of(request)
    keys = (("name", name), ("address", request.client.host if request.client else ""))
    if wait := room.throttle.wait_seconds(*keys):
        seconds = str(int(wait) + 1)
        raise Refusal(
            problem(429, f"too many wrong guesses; try again in {seconds} s"), {"Retry-After": seconds}
        )
    user = room.access.users.get(name)
    checking = asyncio.get_running_loop().run_in_executor(CHECKING, _is_right, user, password)
    if not await checking:
        room.throttle.failed(*keys)
        raise Refusal(problem(401, "the name or the password is wrong", code="wrong_password"))
    room.throttle.succeeded(*keys)
    return room.sessions.begun(name, datetime.now(UTC))


def begin_session(request: Request, answer: Response, session: str) -> None:
    """Put what `log_in` gave on the answer."""
    seconds = int(room_of(request).sessions.lifetime.total_seconds())
    answer.headers.append("Set-Cookie", cookie(request, sessions.COOKIE, session, seconds=seconds))


def end_session(request: Request, answer: Response) -> None:
    answer.headers.append("Set-Cookie", cookie(request, sessions.COOKIE, "", seconds=0))


def safe_next(path: str | None) -> str:
    """Where to go after logging in: a path of ours, never another host."""
    if not path or not path.startswith("/") or path.startswith(("//", "/\\")) or not path.isprintable():
        return "/"
    return path


def _is_right(user: User | None, password: str) -> bool:
    """Takes as long for a name that nobody has: the time must not tell which names there are."""
    return matches(password, user.password if user else _nobodys_password()) and user is not None


@cache
def _nobodys_password() -> str:
    return hashed("a password that nobody has")
