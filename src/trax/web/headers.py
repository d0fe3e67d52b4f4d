"""Security headers of every response: content security policy, no framing, no sniffing, no referrer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.datastructures import MutableHeaders

if TYPE_CHECKING:
    from starlette.types import Message

POLICY: Final = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
NO_STORE: Final = "no-store"


def add_headers(message: Message) -> None:
    """Add the headers to a response start message; an existing Cache-Control is kept."""
    headers = MutableHeaders(raw=message["headers"])
    for name, value in HEADERS.items():
        headers[name] = value
    headers.setdefault("Cache-Control", NO_STORE)
