"""Render pages: templates, static files, display preferences, form actions and their one-time messages."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import asdict, dataclass
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, cast
from urllib.parse import parse_qsl

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import escape
from starlette.responses import HTMLResponse, RedirectResponse
from starlette.staticfiles import StaticFiles

from trax.bounds import load_json
from trax.clock import format_distance, utc_now
from trax.errors import StoreError, TraxError, count_noun
from trax.escapes import visible_text
from trax.web import sessions
from trax.web.context import context_of, csrf_token, current_url, link, request_form, safe_next, visitor_of
from trax.web.pages import formats
from trax.web.pages.formats import json_pieces, parse_whole
from trax.web.pages.listing import load_listing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Scope

    from trax.records.nouns import Noun
    from trax.web.context import Form
    from trax.web.pages.listing import FilterForm, Listing


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
        messages=[] if is_live else read_messages(request),
        preferences=preferences,
        admin=preferences.admin,
        trains=context.app.trains,
        mask=context.mask,
        now=current_time(request),
        **values,
    )
    response = HTMLResponse(body, status)
    if not is_live:
        clear_message(request, response)
    if "admin" in request.query_params:
        preferences.save(request, response)
    return response


async def show_list(
    request: Request,
    template: str,
    noun: Noun,
    form: FilterForm,
    *,
    here: str,
    listing: Listing | None = None,
    **values: Any,
) -> HTMLResponse:
    """Render the list of a noun: its filter form, and the page of records that the URL selects."""
    found = await load_listing(request, noun, form.filters) if listing is None else listing
    columns = noun.page_columns(form.filters)
    return show(request, template, here=here, listing=found, form=form, columns=columns, **values)


def current_time(request: Request) -> datetime:
    """The current time, from the clock of the store if a test has set it."""
    return (context_of(request).app.context.store.clock or utc_now)()


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
        ago=partial(format_distance, units=1),
        json_pieces=json_pieces,
        exact=formats.exact,
        excerpt=formats.excerpt,
        iso=formats.iso,
        count_noun=count_noun,
        failure_limit=formats.failure_limit,
        plain=formats.plain,
        sentence=formats.sentence,
        share=formats.share,
        short=formats.short,
        span=formats.span,
        run_duration=formats.run_duration,
        changes=formats.changes,
        typed=escape,
    )
    return environment


def _visible(value: Any) -> Any:
    """Make control characters visible, so that a job's text cannot reorder its line.

    Form fields must keep the text unchanged: they use the filter `typed`.
    """
    return visible_text(value, keep="\n\r\t") if type(value) is str else value


STATIC: Final = Path(__file__).parent.parent / "static"

IMMUTABLE: Final = "public, max-age=31536000, immutable"


class Assets(StaticFiles):
    """Serves static files. Versioned URLs are immutable; others must be revalidated."""

    def __init__(self) -> None:
        super().__init__(directory=STATIC)

    def file_response(
        self, full_path: Any, stat_result: Any, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        is_versioned = scope.get("query_string", b"").startswith(b"v=")
        response.headers["Cache-Control"] = IMMUTABLE if is_versioned else "no-cache"
        return response


def asset(request: Request, name: str) -> str:
    """The versioned URL of a static file; browsers may cache it forever."""
    return link(request, f"/static/{name}", v=_version(name))


@cache
def _version(name: str) -> str:
    return sha256((STATIC / name).read_bytes()).hexdigest()[:12]


PREFERENCES_COOKIE: Final = "trax_preferences"

BLOCKS: Final = ("tiles", "throughput", "states", "durations", "failing", "blocks")
"""The blocks of the home page."""

DEFAULT_PACE: Final = 3

SLOWEST_PACE: Final = 300

YEAR: Final = 365 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Preferences:
    """Display preferences. `pace`: minimum seconds between two refreshes of a live page."""

    admin: bool = False
    pace: int = DEFAULT_PACE
    hidden: frozenset[str] = frozenset()

    @classmethod
    def of(cls, request: Request) -> Self:
        """Read the cookie; the query parameter `admin` takes precedence."""
        values = dict(parse_qsl(request.cookies.get(PREFERENCES_COOKIE, "")))
        admin = request.query_params.get("admin", values.get("admin", ""))
        return cls(
            admin=admin == "1",
            pace=_pace(values.get("pace", "")),
            hidden=frozenset(values.get("hidden", "").split(".")) & frozenset(BLOCKS),
        )

    @classmethod
    def from_form(cls, form: Mapping[str, str], shown: frozenset[str]) -> Self:
        return cls(
            admin=form.get("admin") == "1",
            pace=_pace(form.get("pace", "")),
            hidden=frozenset(BLOCKS) - shown,
        )

    def save(self, request: Request, response: Response) -> None:
        value = f"admin={int(self.admin)}&pace={self.pace}&hidden={'.'.join(sorted(self.hidden))}"
        response.headers.append(
            "Set-Cookie", sessions.cookie(request, PREFERENCES_COOKIE, value, seconds=YEAR)
        )


def _pace(text: str) -> int:
    pace = parse_whole(text)
    return DEFAULT_PACE if pace is None else min(max(pace, 1), SLOWEST_PACE)


MESSAGES_COOKIE: Final = "trax_message"

SECONDS: Final = 60

CHARACTERS: Final = 600


@dataclass(frozen=True, slots=True)
class Message:
    """A message; `path` links to the item it is about."""

    text: str
    is_good: bool = True
    path: str | None = None


def set_message(request: Request, response: Response, message: Message) -> None:
    content = {**asdict(message), "text": message.text[:CHARACTERS]}
    encoded = urlsafe_b64encode(json.dumps(content).encode()).decode()
    response.headers.append("Set-Cookie", sessions.cookie(request, MESSAGES_COOKIE, encoded, seconds=SECONDS))


def read_messages(request: Request) -> list[Message]:
    """Read the message from the cookie. It is untrusted: shown as plain text, or ignored if invalid."""
    try:
        content: Any = load_json(urlsafe_b64decode(request.cookies.get(MESSAGES_COOKIE, "")))
        return [Message(str(content["text"]), content["is_good"] is True, _own_path(content["path"]))]
    except (ValueError, KeyError, TypeError):
        return []


def clear_message(request: Request, response: Response) -> None:
    if MESSAGES_COOKIE in request.cookies:
        response.headers.append("Set-Cookie", sessions.cookie(request, MESSAGES_COOKIE, "", seconds=0))


def _own_path(path: Any) -> str | None:
    return path if isinstance(path, str) and path == safe_next(path) else None


YES: Final = "yes"


async def run_action(
    request: Request, action: Callable[[], Awaitable[Message]], *, question: str | None = None
) -> Response:
    """Run an action and redirect to the page with its message.

    With a question, the user must confirm first: in a dialog, or without scripts on a page of its own. An
    error is shown as a message on the same page: another operator may have acted first.
    """
    form = request_form(request)
    if question and form.get("confirmed") != YES:
        return _confirm_page(request, form, question)
    try:
        message = await action()
    except StoreError:
        raise
    except TraxError as error:
        message = Message(str(error), is_good=False)
    response = RedirectResponse(current_url(request), 303)
    set_message(request, response, message)
    return response


def row_ids(form: Form) -> list[int]:
    """The ids of the selected rows, where ids are numbers."""
    return [number for word in form.all("ids") if (number := parse_whole(word)) is not None]


def _confirm_page(request: Request, form: Form, question: str) -> Response:
    fields = [(name, value) for name, value in form.pairs if name != sessions.FIELD]
    token = [(sessions.FIELD, form.get(sessions.FIELD))]
    return show(request, "confirm.html", question=question, fields=token + fields, back=current_url(request))
