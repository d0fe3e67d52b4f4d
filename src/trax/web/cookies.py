"""Set-Cookie header values."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.requests import Request


def cookie(request: Request, name: str, value: str, *, seconds: int | None = None) -> str:
    """Format a cookie scoped to the mount path, HttpOnly and SameSite=Lax."""
    words = [f"{name}={value}", f"Path={request.scope.get('root_path') or '/'}", "HttpOnly", "SameSite=Lax"]
    if seconds is not None:
        words.append(f"Max-Age={seconds}")
    if request.scope.get("scheme") == "https":
        words.append("Secure")
    return "; ".join(words)
