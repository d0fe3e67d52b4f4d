"""Pages from templates. Whatever is put into one is escaped; nothing is ever passed through as HTML."""

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
from trax.web.pages.coloured import coloured
from trax.web.pages.taste import Taste
from trax.web.room import csrf_token, link, room_of, visitor_of

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.requests import Request

LIVE: Final = "x-trax-live"
"""A request of a page that renews itself: it takes nothing that was meant for a reader."""


@dataclass(frozen=True, slots=True)
class Stop:
    """One stop of the navigation."""

    key: str
    label: str
    path: str
    icon: str


NAVIGATION: Final = (
    Stop("home", "Home", "/", "home"),
    Stop("trains", "Trains", "/trains", "trains"),
    Stop("groups", "Manifest groups", "/groups", "groups"),
    Stop("manifests", "Manifests", "/manifests", "manifests"),
    Stop("queue", "Work queue", "/queue", "queue"),
    Stop("executions", "Executions", "/executions", "executions"),
    Stop("dead_letters", "Dead letters", "/dead-letters", "letters"),
    None,
    Stop("workers", "Workers", "/workers", "workers"),
    Stop("logs", "Logs", "/logs", "logs"),
    Stop("audit", "Audit", "/audit", "audit"),
    Stop("sessions", "Sessions", "/sessions", "sessions"),
    Stop("settings", "Settings", "/settings", "settings"),
)


def show(
    request: Request, template: str, *, here: str = "", status: int = 200, **values: Any
) -> HTMLResponse:
    """A whole page for somebody who was let in."""
    room, taste = room_of(request), Taste.of(request)
    is_live = LIVE in request.headers
    page = _environment().get_template(template)
    body = page.render(
        room=room,
        visitor=visitor_of(request),
        csrf=csrf_token(request),
        link=partial(link, request),
        asset=partial(asset, request),
        here=here,
        navigation=NAVIGATION,
        messages=[] if is_live else messages.said(request),
        taste=taste,
        admin=taste.admin,
        trains=room.app.trains,
        mask=room.mask,
        now=moment_now(request),
        **values,
    )
    answer = HTMLResponse(body, status)
    if not is_live:
        messages.forget(request, answer)
    if "admin" in request.query_params:
        taste.remember(request, answer)
    return answer


def moment_now(request: Request) -> datetime:
    """The moment to compare others with: that of the store, where a test has set it."""
    return (room_of(request).app.parts.store.clock or utc_now)()


def show_plainly(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """A page for anybody: it knows nothing about who asks."""
    page = _environment().get_template(template)
    body = page.render(
        room=room_of(request), link=partial(link, request), asset=partial(asset, request), **values
    )
    return HTMLResponse(body, status)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("trax.web"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = cast("dict[str, Any]", made.filters)
    filters.update(
        ago=words.ago,
        coloured=coloured,
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
        took=words.took,
        changes=words.changes,
        typed=escape,
    )
    return made


def _visible(value: Any) -> Any:
    """What a job or its input says must not reorder the line it stands in.

    A field that somebody edits holds what was typed, unchanged: it says `|typed`.
    """
    return visible_text(value, keep="\n\r\t") if type(value) is str else value
