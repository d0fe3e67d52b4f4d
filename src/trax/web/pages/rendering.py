"""Render pages from templates. Every value is escaped; nothing is passed through as HTML."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, cast

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import escape
from starlette.responses import HTMLResponse

from trax.clock import utc_now
from trax.escapes import visible_text
from trax.web.pages import messages, words
from trax.web.pages.assets import asset
from trax.web.pages.coloured import json_pieces
from trax.web.pages.taste import Preferences
from trax.web.room import context_of, csrf_token, link, visitor_of

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.requests import Request

LIVE: Final = "x-trax-live"
"""Header of live refreshes, which do not consume one-time messages."""


@dataclass(frozen=True, slots=True)
class NavigationItem:
    """An item of the navigation."""

    key: str
    label: str
    path: str
    icon: str


NAVIGATION: Final = (
    NavigationItem("home", "Home", "/", "home"),
    NavigationItem("trains", "Trains", "/trains", "trains"),
    NavigationItem("groups", "Manifest groups", "/groups", "groups"),
    NavigationItem("manifests", "Manifests", "/manifests", "manifests"),
    NavigationItem("queue", "Work queue", "/queue", "queue"),
    NavigationItem("executions", "Executions", "/executions", "executions"),
    NavigationItem("dead_letters", "Dead letters", "/dead-letters", "letters"),
    None,
    NavigationItem("workers", "Workers", "/workers", "workers"),
    NavigationItem("logs", "Logs", "/logs", "logs"),
    NavigationItem("audit", "Audit", "/audit", "audit"),
    NavigationItem("sessions", "Sessions", "/sessions", "sessions"),
    NavigationItem("settings", "Settings", "/settings", "settings"),
)


def show(
    request: Request, template: str, *, here: str = "", status: int = 200, **values: Any
) -> HTMLResponse:
    """Render a page for an authenticated user."""
    context, preferences = context_of(request), Preferences.of(request)
    is_live = LIVE in request.headers
    page = _environment().get_template(template)
    body = page.render(
        context=context,
        visitor=visitor_of(request),
        csrf=csrf_token(request),
        link=partial(link, request),
        asset=partial(asset, request),
        here=here,
        navigation=NAVIGATION,
        messages=[] if is_live else messages.read_messages(request),
        preferences=preferences,
        admin=preferences.admin,
        trains=context.app.trains,
        mask=context.mask,
        now=current_time(request),
        **values,
    )
    response = HTMLResponse(body, status)
    if not is_live:
        messages.clear_message(request, response)
    if "admin" in request.query_params:
        preferences.save(request, response)
    return response


def current_time(request: Request) -> datetime:
    """The current time, from the clock of the store if a test has set it."""
    return (context_of(request).app.parts.store.clock or utc_now)()


def show_plain(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a page for unauthenticated clients, without user data."""
    page = _environment().get_template(template)
    body = page.render(
        context=context_of(request), link=partial(link, request), asset=partial(asset, request), **values
    )
    return HTMLResponse(body, status)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("trax.web"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = cast("dict[str, Any]", environment.filters)
    filters.update(
        ago=words.ago,
        json_pieces=json_pieces,
        exact=words.exact,
        excerpt=words.excerpt,
        iso=words.iso,
        many=words.many,
        patience=words.patience,
        plain=words.plain,
        sentence=words.sentence,
        share=words.share,
        short=words.short,
        span=words.span,
        run_duration=words.run_duration,
        changes=words.changes,
        typed=escape,
    )
    return environment


def _visible(value: Any) -> Any:
    """Make control characters visible, so that a job's text cannot reorder its line.

    Form fields must keep the text unchanged: they use the filter `typed`.
    """
    return visible_text(value, keep="\n\r\t") if type(value) is str else value
