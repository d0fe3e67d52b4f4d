"""Whether a machine talks to itself."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.requests import Request

FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
NO_ADDRESS: Final = "testclient"
"""What Starlette's test client says where its address would be. No server ever does."""


def is_from_here(request: Request) -> bool:
    """Whether this machine asks itself, and nobody is in between.

    The name it asks for must be its own as well: a page may have been given a name that leads here.
    """
    if any(name in request.headers for name in FORWARDED):
        return False
    client = request.client.host if request.client else ""
    if client == NO_ADDRESS:
        return True
    return is_loopback(client) and is_loopback(_host_name(request.headers.get("host", "")))


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _host_name(host: str) -> str:
    return host if host.endswith("]") or ":" not in host else host.rpartition(":")[0]
