"""The context that every handler shares, helpers for a request, and reads shared by live pages."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar
from urllib.parse import urlencode

from fastapi import Depends
from starlette.requests import Request

from trax.app.app import Trax
from trax.web.access import Access, Visitor
from trax.web.events import Fanout
from trax.web.limits import BodyBudget, WebLimits
from trax.web.masking import Mask
from trax.web.metrics import PrometheusMetrics
from trax.web.passwords import Passwords
from trax.web.peer import TrustedProxies, quote_path
from trax.web.sessions import BrowserSessions, Signer
from trax.web.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable


T = TypeVar("T")

LASTS_SECONDS: Final = 2.0

MOST_SHARED: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class WebContext:
    """One web application: its app, its access configuration and its services."""

    app: Trax
    access: Access
    title: str
    environment: str
    mask: Mask
    signer: Signer
    sessions: BrowserSessions
    passwords: Passwords
    proxies: TrustedProxies
    throttle: Throttle
    limits: WebLimits
    bodies: BodyBudget
    fanout: Fanout
    metrics: PrometheusMetrics
    shared: SharedReads


def context_of(request: Request) -> WebContext:
    return request.app.state.context


def visitor_of(request: Request) -> Visitor:
    """The client of the request, as the guard has authenticated it."""
    return request.state.visitor


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a submitted form, in order."""

    pairs: tuple[tuple[str, str], ...] = ()

    def get(self, name: str, default: str = "") -> str:
        """The last value of a field."""
        return next((value.strip() for key, value in reversed(self.pairs) if key == name), default)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.pairs if key == name]


def request_form(request: Request) -> Form:
    """The form that the request has sent, as the guard has parsed it; empty for any other body."""
    return request.state.form


def csrf_token(request: Request) -> str:
    """The token that forms send as `csrf_token`, and scripts as the header `X-CSRF-Token`."""
    return context_of(request).signer.token_for(request.state.csrf_binding)


def link(request: Request, path: str, **query: Any) -> str:
    """The URL of one of our paths below the mount point; `path` begins with a slash.

    It contains no host, so a forged Host header cannot redirect anyone to another site.
    """
    values = {name: value for name, value in query.items() if value is not None}
    tail = f"?{urlencode(values, doseq=True)}" if values else ""
    return f"{request.scope.get('root_path', '')}{quote_path(path)}{tail}"


def current_url(request: Request) -> str:
    """The URL of this request; forms post to the page they are on."""
    query = request.url.query
    return link(request, path_of(request)) + (f"?{query}" if query else "")


def is_for_program(request: Request) -> bool:
    """Whether the response is for a program and not for a person in a browser."""
    path = path_of(request)
    return path.startswith(("/api/", "/health", "/metrics"))


def path_of(request: Request) -> str:
    """The path below the mount point, as the routes see it (`peer.py`)."""
    return request.scope["path"].removeprefix(request.scope.get("root_path", "")) or "/"


def safe_next(path: str | None) -> str:
    """The path to open after login: always one of ours, never another host."""
    if not path or not path.startswith("/") or path.startswith(("//", "/\\")) or not path.isprintable():
        return "/"
    return path


InjectedContext = Annotated[WebContext, Depends(context_of)]

InjectedVisitor = Annotated[Visitor, Depends(visitor_of)]


class SharedReads:
    """Caches results until the next change event, and for at most a few seconds."""

    def __init__(self) -> None:
        self._mark = ""
        self._answers: dict[Hashable, tuple[asyncio.Task[Any], float]] = {}

    def __len__(self) -> int:
        return len(self._answers)

    async def get(self, event_id: str, key: Hashable, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The cached result for this event id, or a new read.

        The first caller may be cancelled before the result is there: the others still get it.
        """
        if event_id != self._mark or len(self._answers) >= MOST_SHARED:
            self._mark, self._answers = event_id, {}
        task, until = self._answers.get(key, (None, 0.0))
        if task is None or time.monotonic() > until:
            task = asyncio.create_task(read())
            self._answers[key] = task, time.monotonic() + LASTS_SECONDS
        return await asyncio.shield(task)
