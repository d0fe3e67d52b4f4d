"""The web application: the HTTP API and the dashboard, as one ASGI application.

    from trax.web import Access, Role, Token, create
    web = create(app, access=Access(tokens={"ci": Token("…", Role.OPERATOR)}))    # also: app.web(access=…)

application.py   `create` builds the application; it can be mounted under any prefix
serve.py         `trax run --web` and `trax dashboard`: the server in its own thread and event loop
limits.py        `WebLimits`: connections, sizes, timeouts
context.py       the context every handler shares (app, access, title, mask, …), and helpers for a request:
                 the visitor (name, role, may_change), the CSRF token, links below the mount point

responses.py     middleware: security headers on every response; errors as problem+json or as a page
peer.py          client addresses behind trusted proxies; paths, where `%2F` is part of a name
guard.py         authentication and authorization: a change needs an operator and, from a browser, the CSRF
                 token, as the form field `csrf_token` or the header `X-CSRF-Token`. Handlers need not check
access.py        configuration of access: tokens, users, a function of yours; roles; password hashes
passwords.py     verify passwords; hashes of the current cost in place of weaker configured ones
sessions.py      browser sessions are database rows, found by a cookie; CSRF tokens
throttle.py      rate limits for guessed secrets
problems.py      errors as problem+json: `raise Refusal(problem(409, "…"))`; exceptions of trax are converted
masking.py       inputs and outputs with secrets hidden

api/             `/api/v1`, the same nouns and verbs as the Python resources
events.py        `/api/v1/events`: server-sent events with tags of what changed; one watcher for all clients
pages/           the dashboard: `router`
templates/       its templates
static/          its style sheet, scripts and images, served below /static
charts.py        charts as SVG
health.py        `/health` and `/metrics`, for monitoring
metrics.py       the metrics in Prometheus format
"""

from __future__ import annotations

from trax.web.access import Access, Means, Role, Token, User, Visitor, hash_password
from trax.web.application import create
from trax.web.limits import WebLimits

__all__ = ["Access", "Means", "Role", "Token", "User", "Visitor", "WebLimits", "create", "hash_password"]
