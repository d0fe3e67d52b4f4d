"""One-time messages, shown on the page that follows an action."""

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

MESSAGES_COOKIE: Final = "trax_said"
SECONDS: Final = 60
CHARACTERS: Final = 600


@dataclass(frozen=True, slots=True)
class Message:
    """A message; `path` links to the item it is about."""

    text: str
    is_good: bool = True
    path: str | None = None


def set_message(request: Request, response: Response, message: Message) -> None:
    content = {**asdict(message), "text": message.text[:CHARACTERS]}
    encoded = urlsafe_b64encode(json.dumps(content).encode()).decode()
    response.headers.append("Set-Cookie", cookie(request, MESSAGES_COOKIE, encoded, seconds=SECONDS))


def read_messages(request: Request) -> list[Message]:
    """Read the message from the cookie. It is untrusted: shown as plain text, or ignored if invalid."""
    try:
        content: Any = load_json(urlsafe_b64decode(request.cookies.get(MESSAGES_COOKIE, "")))
        return [Message(str(content["text"]), content["is_good"] is True, _own_path(content["path"]))]
    except (ValueError, KeyError, TypeError):
        return []


def clear_message(request: Request, response: Response) -> None:
    if MESSAGES_COOKIE in request.cookies:
        response.headers.append("Set-Cookie", cookie(request, MESSAGES_COOKIE, "", seconds=0))


def _own_path(path: Any) -> str | None:
    return path if isinstance(path, str) and path == safe_next(path) else None
