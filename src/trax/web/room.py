"""What every handler of the control room shares, and how it gets at it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends
from starlette.requests import Request

from trax.host.app import Trax
from trax.web.access import Access, Visitor
from trax.web.addresses import quote_path
from trax.web.csrf import Signer
from trax.web.events import Fanout
from trax.web.limits import WebLimits
from trax.web.masking import Mask
from trax.web.metrics import Metrics
from trax.web.peer import TrustedProxies
from trax.web.sessions import BrowserSessions
from trax.web.shared import Shared
from trax.web.throttle import Throttle


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """One control room: the app it is about, and who may enter."""

    app: Trax
    access: Access
    title: str
    environment: str
    mask: Mask
    signer: Signer
    sessions: BrowserSessions
    proxies: TrustedProxies
    throttle: Throttle
    limits: WebLimits
    fanout: Fanout
    metrics: Metrics
    shared: Shared


def room_of(request: Request) -> Room:
    return request.app.state.room


def visitor_of(request: Request) -> Visitor:
    """Who asks. The guard has let them in before any handler was called."""
    return request.state.visitor


def csrf_token(request: Request) -> str:
    """What a form of ours carries as `csrf_token`, and a script as the header `X-CSRF-Token`."""
    return room_of(request).signer.token_for(request.state.csrf_binding)


def link(request: Request, path: str, **query: Any) -> str:
    """The address of something of ours, wherever we are mounted; `path` begins with a slash.

    It names no host, so nothing that a request says about the host can lead anybody elsewhere.
    """
    asked = {name: value for name, value in query.items() if value is not None}
    tail = f"?{urlencode(asked, doseq=True)}" if asked else ""
    return f"{request.scope.get('root_path', '')}{quote_path(path)}{tail}"


def here(request: Request) -> str:
    """The address that was asked for; a form is sent to the page it is on."""
    query = request.url.query
    return link(request, path_of(request)) + (f"?{query}" if query else "")


def is_for_program(request: Request) -> bool:
    """Whether the answer is read by a program and not by a person in a browser."""
    path = path_of(request)
    return path.startswith(("/api/", "/health", "/metrics"))


def path_of(request: Request) -> str:
    """The path below the place where we are mounted, as the routes see it (`addresses.py`)."""
    return request.scope["path"].removeprefix(request.scope.get("root_path", "")) or "/"


TheRoom = Annotated[Room, Depends(room_of)]
TheVisitor = Annotated[Visitor, Depends(visitor_of)]
