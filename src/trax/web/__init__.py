"""The web application: the HTTP API and the dashboard, as one ASGI application.

    from trax.web import Access, Role, Token, create
    web = create(app, access=Access(tokens={"ci": Token("…", Role.OPERATOR)}))    # also: app.web(access=…)

application.py   `create` builds the application; it can be mounted under any prefix
room.py          the context every handler shares (app, access, title, mask, …), and helpers for a request:
                 the visitor (name, role, may_change), the CSRF token, links below the mount point
addresses.py     path handling: `%2F` in a path is part of a name; HEAD is GET without a body
guard.py         authentication and authorization: a change needs an operator and, from a browser, the CSRF
                 token, as the form field `csrf_token` or the header `X-CSRF-Token`. Handlers need not check
access.py        configuration of access: tokens, users, a function of yours; roles
login.py         password and link sign-in; sessions.py: browser sessions are database rows, found by a cookie
throttle.py      rate limits for guessed secrets; passwords.py: scrypt hashes, verified one at a time
peer.py          client addresses, and forwarding headers of trusted proxies
csrf.py          CSRF tokens
problems.py      errors as problem+json: `raise Refusal(problem(409, "…"))`; exceptions of trax are converted
answers.py       error responses: problem+json below /api, /health and /metrics, elsewhere a page
skin.py          middleware: security headers on every response, and a response to every failure
masking.py       inputs and outputs with secrets hidden
api/             `/api/v1`, the same nouns and verbs as the Python resources
events.py        `/api/v1/events`: server-sent events with tags of what changed; one watcher for all clients
shared.py        one database read for all live pages that need the same numbers at once
pages/           the dashboard: `router`; templates/, static/ (served below /static), charts/
health.py        `/health` and `/metrics`, for monitoring
serving.py       `trax run --web` and `trax dashboard`: the server in its own thread and event loop
connections.py   that server's connection limits and timeouts; limits.py: `WebLimits`
"""

from __future__ import annotations

from trax.web.access import Access, Means, Role, Token, User, Visitor, hash_password
from trax.web.application import create
from trax.web.limits import WebLimits

__all__ = ["Access", "Means", "Role", "Token", "User", "Visitor", "WebLimits", "create", "hash_password"]
