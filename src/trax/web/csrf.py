"""CSRF protection: a change from a browser must come from our own origin and carry a token of our pages.

A browser sends its cookies with requests that other sites make, so cookies alone prove nothing.
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
