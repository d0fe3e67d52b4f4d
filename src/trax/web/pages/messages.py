"""What is said once on the page that follows an action, and then forgotten."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from trax.bounds import load_json
from trax.web.cookies import cookie
from trax.web.login import safe_next

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

COOKIE: Final = "trax_said"
SECONDS: Final = 60
CHARACTERS: Final = 600


@dataclass(frozen=True, slots=True)
class Message:
    """One sentence; `path` leads to what it is about."""

    text: str
    is_good: bool = True
    path: str | None = None


def say(request: Request, answer: Response, message: Message) -> None:
    kept = {**asdict(message), "text": message.text[:CHARACTERS]}
    written = urlsafe_b64encode(json.dumps(kept).encode()).decode()
    answer.headers.append("Set-Cookie", cookie(request, COOKIE, written, seconds=SECONDS))


def said(request: Request) -> list[Message]:
    """The browser only carries it: whatever else it may send is shown as text, or not at all."""
    try:
        found: Any = load_json(urlsafe_b64decode(request.cookies.get(COOKIE, "")))
        return [Message(str(found["text"]), found["is_good"] is True, _ours(found["path"]))]
    except (ValueError, KeyError, TypeError):
        return []


def forget(request: Request, answer: Response) -> None:
    if COOKIE in request.cookies:
        answer.headers.append("Set-Cookie", cookie(request, COOKIE, "", seconds=0))


def _ours(path: Any) -> str | None:
    return path if isinstance(path, str) and path == safe_next(path) else None
