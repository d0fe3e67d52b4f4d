"""That a change was asked for by our own page, and not by another one behind the operator's back.

A browser sends its cookies wherever a page tells it to. So every change a browser asks for must come from
our own origin, and carry a token that only our pages know.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from starlette.datastructures import Headers

FIELD: Final = "csrf_token"
HEADER: Final = "x-csrf-token"
COOKIE: Final = "trax_browser"
"""Tells browsers apart for which nobody has logged in; it means nothing by itself."""
PURPOSE: Final = "csrf"
OURS: Final = ("same-origin", "none")
SIGNS: Final = ("origin", "referer", "sec-fetch-site", "cookie")


@dataclass(frozen=True, slots=True)
class Signer:
    """Makes and checks the tokens of our pages."""

    key: bytes = field(repr=False)

    @classmethod
    def of(cls, secret: str | None) -> Self:
        """From a configured secret, or from chance: then it is worth nothing in another process."""
        return cls(secrets.token_bytes(32) if secret is None else sha256(secret.encode()).digest())

    def token_for(self, bound_to: str) -> str:
        """The token for pages shown to one session, or to one browser where nobody has logged in."""
        return hmac.new(self.key, f"{PURPOSE}\n{bound_to}".encode(), sha256).hexdigest()

    def is_token_for(self, bound_to: str, token: str) -> bool:
        return bool(bound_to) and hmac.compare_digest(self.token_for(bound_to).encode(), token.encode())


def new_browser() -> str:
    return secrets.token_urlsafe(18)


def is_from_browser(headers: Headers) -> bool:
    """Whether this may come from a page in a browser: everything but a plain program says one of these."""
    return any(sign in headers for sign in SIGNS)


def is_from_elsewhere(headers: Headers) -> bool:
    """Whether a page of another origin sent this. What browsers say about it cannot be said by a page."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in OURS
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != headers.get("host")
