"""Client addresses behind trusted proxies, and request paths as the routes see them."""

from __future__ import annotations

import asyncio
import logging
import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from starlette.convertors import StringConvertor, register_url_convertor
from starlette.datastructures import Headers

from trax.errors import DefinitionError, format_value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from ipaddress import IPv4Network

    from starlette.requests import Request
    from starlette.types import Message, Receive, Scope, Send

logger = logging.getLogger(__name__)
SLASH: Final = "\uffff"
"""Marks a slash that was sent as `%2F`. It is a Unicode noncharacter, so no name contains it."""
IS_HEAD: Final = "trax.is_head"
ESCAPED: Final = re.compile("%2[fF]")


class NameConvertor(StringConvertor):
    """A name in a path, written `{name:name}`. Its slashes are sent as `%2F`, or as `/` if unambiguous.

    `/manifests/a%2Fwhy` is the manifest `a/why`; `/manifests/a/why` asks why `a` is not running.
    """

    regex = ".*"

    def convert(self, value: str) -> str:
        return plain_path(value)


class SegmentConvertor(NameConvertor):
    """A name in a path that an unescaped slash ends: `{name:segment}`."""

    regex = "[^/]+"


register_url_convertor("name", NameConvertor())
register_url_convertor("segment", SegmentConvertor())


def build_route_scope(scope: Scope) -> Scope:
    """Build the scope for routing: escaped slashes are marked in its path, and HEAD becomes GET."""
    is_head = scope["method"] == "HEAD"
    return {**scope, "path": _path(scope), "method": "GET" if is_head else scope["method"], IS_HEAD: is_head}


def is_head(request: Request) -> bool:
    """Whether the client wants only the headers: this must change nothing, though the method reads GET."""
    return bool(request.scope.get(IS_HEAD))


def plain_path(path: str) -> str:
    """The path or name with marked slashes turned back into `/`."""
    return path.replace(SLASH, "/")


def quote_path(path: str) -> str:
    """The path, percent-encoded for a URL."""
    return "%2F".join(map(quote, path.split(SLASH)))


def _path(scope: Scope) -> str:
    """The path as the server and mounts left it, with slashes that came from `%2F` marked."""
    path: str = scope["path"].replace(SLASH, "\N{REPLACEMENT CHARACTER}")
    raw = scope.get("raw_path") or b""
    if b"%2" not in raw:
        return path
    kept = SLASH.join(unquote(part) for part in ESCAPED.split(raw.decode("latin-1")))
    mounted = len(scope.get("root_path", ""))
    return path[:mounted] + kept[mounted:] if plain_path(kept) == path else path


class HeadersOnly:
    """`receive` and `send` for HEAD: headers pass, the body is dropped, and an endless stream is ended."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._headers_sent = asyncio.Event()
        self._is_request_sent = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._send(message)
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            self._headers_sent.set()

    async def receive(self) -> Message:
        """An empty body, then a disconnect once the headers are sent."""
        if not self._is_request_sent:
            self._is_request_sent = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._headers_sent.wait()
        return {"type": "http.disconnect"}


def channels_for(scope: Scope, receive: Receive, send: Send) -> tuple[Receive, Send]:
    """The `receive` and `send` to use for this request."""
    if scope["method"] != "HEAD":
        return receive, send
    only = HeadersOnly(send)
    return only.receive, only.send


X_FORWARDED_PROTO: Final = "x-forwarded-proto"
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
HOST: Final = re.compile(r"\.?[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?|\[[0-9a-f:.]+\]")
PREFIX_LENGTHS: Final = (64, 56, 48)
SCHEMES: Final = ("http", "https")
X_FORWARDED: Final = "x-forwarded-for"
FORWARDED: Final = "forwarded"
FORWARDING_KINDS: Final = (X_FORWARDED, FORWARDED)
"""The headers in which a trusted proxy may name the client."""


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
    """Proxies that are trusted to forward the client's address and scheme.

    A proxy writes one kind of header and passes the other on as the client sent it. So only the configured
    kind is read.
    """

    def __init__(self, addresses: Iterable[str], header: str = X_FORWARDED) -> None:
        self._networks = parse_networks(addresses)
        self._is_rfc7239 = header == FORWARDED
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
        if (scheme := self._client_scheme(headers)) in SCHEMES:
            scope["scheme"] = scheme

    def _client_address(self, peer: str, headers: Headers) -> str:
        """The right-most address that is not a trusted proxy: everything left of it may be forged."""
        hops = _rfc7239_values(headers, "for") if self._is_rfc7239 else _x_forwarded_for_hops(headers)
        return self._nearest_untrusted(peer, hops)

    def _client_scheme(self, headers: Headers) -> str:
        schemes = (
            _rfc7239_values(headers, "proto") if self._is_rfc7239 else [headers.get(X_FORWARDED_PROTO, "")]
        )
        return next(iter(schemes), "").partition(",")[0].strip().lower()

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
        if self._has_warned or not any(name in headers for name in FORWARDING_KINDS):
            return
        self._has_warned = True
        logger.warning(
            "dashboard: ignoring forwarding headers from %s: it is not configured as a trusted proxy; "
            "if it is your proxy, add it to $TRAX_WEB_TRUSTED_PROXIES",
            format_value(peer),
        )


def is_local_request(request: Request) -> bool:
    """Whether the request comes from this machine, without a proxy.

    The Host header must be a loopback name too: another site's host name may resolve to this machine (DNS
    rebinding).
    """
    if any(name in request.headers for name in FORWARDING_HEADERS):
        return False
    return is_loopback(_peer(request.scope)) and is_loopback(host_of(request))


def host_of(request: Request) -> str:
    """The name or address by which the client calls this server, without a port."""
    host = request.headers.get("host", "")
    return host if host.endswith("]") or ":" not in host else host.rpartition(":")[0]


def is_allowed_host(host: str, allowed: Collection[str]) -> bool:
    """Whether a host is one of these names; `.example.com` also allows the names below it."""
    name = host.lower().rstrip(".")
    return any(name == each or (each.startswith(".") and f".{name}".endswith(each)) for each in allowed)


def cannot_be_rebound(host: str) -> bool:
    """Whether no other site can have this host: it is an address, or a name of this machine itself.

    A site may have its own name resolve to this server (DNS rebinding); a browser then shows it our pages.
    """
    return host.lower() == "localhost" or _parse_address(host) is not None


def parse_hosts(hosts: Iterable[str]) -> tuple[str, ...]:
    """Check the names of allowed hosts: without scheme, port and path."""
    names = tuple(host.strip().lower().rstrip(".") for host in hosts)
    for name in names:
        if not HOST.fullmatch(name):
            raise DefinitionError(
                "allowed_hosts must be names or addresses without scheme and port, such as trax.example.com, "
                f"or .example.com for all names below it (got {format_value(name)})"
            )
    return names


def is_loopback(host: str) -> bool:
    address = _parse_address(host.strip("[]"))
    return host.lower() == "localhost" if address is None else address.is_loopback


def networks_of(address: str) -> tuple[str, ...]:
    """The keys for counting guesses, the narrowest first.

    An IPv4 address is one key. An IPv6 address has three: anyone may have a /64 network, customers often have
    a /56 and sites a /48, with thousands of the smaller ones.
    """
    parsed = _parse_address(address)
    if isinstance(parsed, IPv6Address):
        return tuple(str(IPv6Network((parsed, length), strict=False)) for length in PREFIX_LENGTHS)
    return (address if parsed is None else str(parsed),)


def _peer(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


def _x_forwarded_for_hops(headers: Headers) -> list[str]:
    joined = ",".join(headers.getlist("x-forwarded-for"))
    return [hop.strip() for hop in joined.split(",") if hop.strip()]


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
