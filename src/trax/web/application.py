"""Build the web application (dashboard and HTTP API) as an ASGI application."""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, cast

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from trax.errors import InvalidArgument, TraxError
from trax.schedule.validate import TEXT, TEXT_OR_NONE
from trax.web import api, health, pages
from trax.web.access import Access
from trax.web.api.document import document
from trax.web.context import SharedReads, WebContext
from trax.web.events import Fanout
from trax.web.guard import Guard
from trax.web.limits import BodyBudget, WebLimits
from trax.web.masking import Mask
from trax.web.metrics import PrometheusMetrics
from trax.web.pages.rendering import Assets
from trax.web.passwords import Passwords
from trax.web.peer import TrustedProxies
from trax.web.problems import Refusal
from trax.web.responses import HeadersMiddleware, error_response
from trax.web.sessions import BrowserSessions, Signer
from trax.web.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trax.app.app import Trax

TITLE: Final = "Trax"


def create(
    app: Trax,
    *,
    access: Access | None = None,
    title: str = TITLE,
    environment: str | None = None,
    mask: Iterable[str] | None = None,
    limits: WebLimits | None = None,
) -> FastAPI:
    """Build the dashboard and the HTTP API of an app.

    Without `access`, tokens and users are read from the environment (`TRAX_WEB_TOKENS`, `TRAX_WEB_USERS`). If
    there are none, the only way to sign in is a link of `trax sessions link`. `environment` is shown in the
    header, such as "production". `mask` lists field names whose values are hidden in inputs and outputs; by
    default, names that look like a secret. `limits` bound what clients may use.
    """
    for place, value, kind in (("access", access, Access), ("limits", limits, WebLimits)):
        if value is not None and not isinstance(cast("Any", value), kind):
            raise InvalidArgument(place, f"a {kind.__name__}, or None", value)
    TEXT("title", title)
    TEXT_OR_NONE("environment", environment)
    limits = limits or WebLimits.from_environment()
    context = _build_context(app, access or Access.from_environment(), title, environment, mask, limits)
    web = FastAPI(
        title=title,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        version=version("trax-scheduler"),
        generate_unique_id_function=lambda route: route.name,
        middleware=[Middleware(HeadersMiddleware), Middleware(Guard, context)],
    )
    web.state.context = context
    web.openapi = partial(document, web)
    for kind in (RequestValidationError, HTTPException, TraxError, Refusal):
        web.add_exception_handler(kind, error_response)
    web.mount("/static", Assets(), name="static")
    web.include_router(health.router)
    web.include_router(api.router())
    web.include_router(pages.router)
    return web


def _build_context(
    app: Trax,
    access: Access,
    title: str,
    environment: str | None,
    mask: Iterable[str] | None,
    limits: WebLimits,
) -> WebContext:
    return WebContext(
        app=app,
        access=access,
        title=title,
        environment=environment or app.context.identity.environment,
        mask=Mask.from_names(mask),
        signer=Signer.of(access.secret),
        sessions=BrowserSessions(app, access),
        passwords=Passwords(app, access),
        proxies=TrustedProxies(access.trusted_proxies, access.forwarding_header),
        throttle=Throttle(),
        limits=limits,
        bodies=BodyBudget(limits),
        fanout=Fanout(app, limits),
        metrics=PrometheusMetrics(app),
        shared=SharedReads(),
    )
