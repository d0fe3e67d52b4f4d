"""Client addresses: the peer of a connection, or what a trusted proxy forwards about its client."""

from __future__ import annotations

import logging
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers

from trax.errors import DefinitionError, format_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from ipaddress import IPv4Network

    from starlette.requests import Request
    from starlette.types import Scope

logger = logging.getLogger(__name__)

FORWARDING_HEADERS: Final = (
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
)
"""Headers that proxies add. A request with one of these does not count as local."""
MAX_HOPS: Final = 20
SCHEMES: Final = ("http", "https")


def parse_networks(addresses: Iterable[str]) -> tuple[IPv4Network | IPv6Network, ...]:
    """Parse the addresses and networks of trusted proxies (10.0.0.7, 10.0.0.0/8)."""
    networks: list[IPv4Network | IPv6Network] = []
    for address in addresses:
        try:
            networks.append(ip_network(address.strip()))
        except ValueError as error:
            raise DefinitionError(
                f"trusted_proxies must be addresses or networks, such as 10.0.0.7 or 10.0.0.0/8: {error}"
            ) from None
    return tuple(networks)


class TrustedProxies:
    """Proxies that are trusted to forward the client's address and scheme."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self._networks = parse_networks(addresses)
        self._has_warned = False

    def __contains__(self, address: str) -> bool:
        parsed = _parse_address(address)
        return parsed is not None and any(parsed in network for network in self._networks)

    def apply_to(self, scope: Scope) -> None:
        """Set the client's address and scheme on a request that a trusted proxy forwarded."""
        peer = _peer(scope)
        headers = Headers(scope=scope)
        if peer not in self:
            self._warn(peer, headers)
            return
        scope["client"] = (self._client_address(peer, headers), 0)
        if (scheme := _client_scheme(headers)) in SCHEMES:
            scope["scheme"] = scheme

    def _client_address(self, peer: str, headers: Headers) -> str:
        """The right-most address that is not a trusted proxy: everything left of it may be forged.

        A proxy writes one of the two headers and may pass the other on unchanged. If they disagree, neither
        is used.
        """
        lists = [hops for hops in (_x_forwarded_for_hops(headers), _rfc7239_hops(headers)) if hops]
        addresses = {self._nearest_untrusted(peer, hops) for hops in lists}
        return addresses.pop() if len(addresses) == 1 else peer

    def _nearest_untrusted(self, peer: str, hops: Sequence[str]) -> str:
        nearest = peer
        for hop in reversed(hops[-MAX_HOPS:]):
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
            "ignoring forwarding headers from %s: it is not a trusted proxy; "
            "if it is one, add it to $TRAX_WEB_TRUSTED_PROXIES",
            format_value(peer),
        )


def is_local_request(request: Request) -> bool:
    """Whether the request comes from this machine, without a proxy.

    The Host header must be a loopback name too: another site's host name may resolve to this machine (DNS
    rebinding).
    """
    if any(name in request.headers for name in FORWARDING_HEADERS):
        return False
    return is_loopback(_peer(request.scope)) and is_loopback(_host_name(request.headers.get("host", "")))


def is_loopback(host: str) -> bool:
    address = _parse_address(host.strip("[]"))
    return host.lower() == "localhost" if address is None else address.is_loopback


def network_of(address: str) -> str:
    """The key for counting guesses: the IPv4 address, or the /64 network of an IPv6 address."""
    parsed = _parse_address(address)
    if isinstance(parsed, IPv6Address):
        return str(IPv6Network((parsed, 64), strict=False))
    return address if parsed is None else str(parsed)


def _peer(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


def _client_scheme(headers: Headers) -> str:
    schemes = headers.get("x-forwarded-proto") or next(iter(_rfc7239_values(headers, "proto")), "")
    return schemes.partition(",")[0].strip().lower()


def _x_forwarded_for_hops(headers: Headers) -> list[str]:
    joined = ",".join(headers.getlist("x-forwarded-for"))
    return [hop.strip() for hop in joined.split(",") if hop.strip()]


def _rfc7239_hops(headers: Headers) -> list[str]:
    return _rfc7239_values(headers, "for")


def _rfc7239_values(headers: Headers, parameter: str) -> list[str]:
    """The values of one parameter of `Forwarded`, hop by hop: `for="[2001:db8::1]:4711";proto=https`."""
    pairs = (
        pair.partition("=")
        for hop in ",".join(headers.getlist("forwarded")).split(",")
        for pair in hop.split(";")
    )
    return [value.strip().strip('"') for name, _, value in pairs if name.strip().lower() == parameter]


def _parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an address, with or without a port; None if it is not one."""
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
