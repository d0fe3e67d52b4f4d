"""Who is at the other end of a connection, and what a proxy that was declared says about who is behind it."""

from __future__ import annotations

import logging
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers

from trax.errors import DefinitionError, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from ipaddress import IPv4Network

    from starlette.requests import Request
    from starlette.types import Scope

logger = logging.getLogger(__name__)

FORWARDING: Final = (
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
)
"""What a proxy may add. Whoever sends one of these is not the machine talking to itself."""
HOPS_AT_MOST: Final = 20
SCHEMES: Final = ("http", "https")


def parse_networks(addresses: Iterable[str]) -> tuple[IPv4Network | IPv6Network, ...]:
    """The networks of declared proxies, each given as an address or a network (10.0.0.7, 10.0.0.0/8)."""
    found: list[IPv4Network | IPv6Network] = []
    for address in addresses:
        try:
            found.append(ip_network(address.strip()))
        except ValueError as error:
            raise DefinitionError(
                f"trusted_proxies must be addresses or networks, such as 10.0.0.7 or 10.0.0.0/8: {error}"
            ) from None
    return tuple(found)


class TrustedProxies:
    """Proxies whose word counts about the address and the scheme that a visitor used outside."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self._networks = parse_networks(addresses)
        self._has_warned = False

    def __contains__(self, address: str) -> bool:
        parsed = _parse_address(address)
        return parsed is not None and any(parsed in network for network in self._networks)

    def apply_to(self, scope: Scope) -> None:
        """Put the outside address and scheme on a request that a declared proxy passed on."""
        peer = _peer(scope)
        headers = Headers(scope=scope)
        if peer not in self:
            self._warn(peer, headers)
            return
        scope["client"] = (self._outside_address(peer, headers), 0)
        if (scheme := _outside_scheme(headers)) in SCHEMES:
            scope["scheme"] = scheme

    def _outside_address(self, peer: str, headers: Headers) -> str:
        """The right-most address that no declared proxy has: everything left of it may be made up.

        A proxy writes one of the two headers and may pass the other on as it came. Where they disagree,
        neither counts.
        """
        lists = [hops for hops in (_plain_hops(headers), _standard_hops(headers)) if hops]
        found = {self._nearest_untrusted(peer, hops) for hops in lists}
        return found.pop() if len(found) == 1 else peer

    def _nearest_untrusted(self, peer: str, hops: Sequence[str]) -> str:
        nearest = peer
        for hop in reversed(hops[-HOPS_AT_MOST:]):
            address = _parse_address(hop)
            if address is None:
                break
            nearest = str(address)
            if nearest not in self:
                break
        return nearest

    def _warn(self, peer: str, headers: Headers) -> None:
        if self._has_warned or not any(name in headers for name in ("x-forwarded-for", "forwarded")):
            return
        self._has_warned = True
        logger.warning(
            "ignoring forwarding headers from %s: it is no declared proxy; "
            "if it is yours, name it in $TRAX_WEB_TRUSTED_PROXIES",
            shown(peer),
        )


def is_from_here(request: Request) -> bool:
    """Whether this machine asks itself, and nobody says that they are in between.

    The name it asks for must be its own as well: a page may have been given a name that leads here.
    """
    if any(name in request.headers for name in FORWARDING):
        return False
    return is_loopback(_peer(request.scope)) and is_loopback(_host_name(request.headers.get("host", "")))


def is_loopback(host: str) -> bool:
    address = _parse_address(host.strip("[]"))
    return host.lower() == "localhost" if address is None else address.is_loopback


def network_of(address: str) -> str:
    """What guesses are counted by: an address, of IPv6 the network that one customer is given."""
    parsed = _parse_address(address)
    if isinstance(parsed, IPv6Address):
        return str(IPv6Network((parsed, 64), strict=False))
    return address if parsed is None else str(parsed)


def _peer(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


def _outside_scheme(headers: Headers) -> str:
    said = headers.get("x-forwarded-proto") or next(iter(_standard_values(headers, "proto")), "")
    return said.partition(",")[0].strip().lower()


def _plain_hops(headers: Headers) -> list[str]:
    whole = ",".join(headers.getlist("x-forwarded-for"))
    return [hop.strip() for hop in whole.split(",") if hop.strip()]


def _standard_hops(headers: Headers) -> list[str]:
    return _standard_values(headers, "for")


def _standard_values(headers: Headers, wanted: str) -> list[str]:
    """What the header `Forwarded` says under a name, hop by hop: `for="[2001:db8::1]:4711";proto=https`."""
    pairs = (
        pair.partition("=")
        for hop in ",".join(headers.getlist("forwarded")).split(",")
        for pair in hop.split(";")
    )
    return [value.strip().strip('"') for name, _, value in pairs if name.strip().lower() == wanted]


def _parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """An address, with or without a port; what is none of that is None."""
    host = text
    if text.startswith("["):
        host = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        host = text.partition(":")[0]
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _host_name(host: str) -> str:
    return host if host.endswith("]") or ":" not in host else host.rpartition(":")[0]
