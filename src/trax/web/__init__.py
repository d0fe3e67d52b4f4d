"""The control room: a REST API and the dashboard, as one ASGI application.

    from trax.web import Access, Role, Token, create
    web = create(app, access=Access(tokens={"ci": Token("…", Role.OPERATOR)}))    # also: app.web(access=…)

application.py   `create`: puts everything together; mountable under any prefix
room.py          `Room` (app, access, title, environment, mask, …) and what handlers ask of a request:
                 `room_of(request)`, `visitor_of(request)` (name, role, may_change), `csrf_token(request)`,
                 `link(request, "/executions", state="failed")`: addresses below the mount, without a host
addresses.py     `%2F` in a path is part of a name, and HEAD is GET without a body
guard.py         lets in who may: every change takes an operator and, from a browser, the CSRF token, as the
                 form field `csrf_token` (urlencoded) or the header `X-CSRF-Token`. Handlers need not ask
access.py        tokens, users, a function of yours; roles
login.py         checks passwords and links; sessions.py: sessions are rows, and a cookie finds its own
throttle.py      holds up those who guess; passwords.py: scrypt hashes, checked one at a time
peer.py          who is at the other end, and what declared proxies say about who is behind them
csrf.py          the tokens of our own pages
problems.py      `raise Refusal(problem(409, "…"))`; errors of trax become answers by themselves: problem+json
                 below /api, /health and /metrics, elsewhere `pages.problem_page.problem_page`
skin.py          safe headers on every answer, and an answer for everything
masking.py       `room.mask(value)`: inputs and outputs as they may be shown
api/             `/api/v1`, the same nouns and verbs as the Python resources
events.py        `/api/v1/events`: server-sent tags of what changed; one watcher for all viewers
shared.py        what all viewers ask in the same moment is asked once
pages/           the dashboard: `router`; templates/, static/ (served below /static), charts/
health.py        `/health` and `/metrics`, for monitors
serving.py       `trax run --web` and `trax dashboard`: a thread and an event loop of their own
connections.py   the server there: so many connections, and none that stands still; limits.py: `WebLimits`
"""

from __future__ import annotations

from trax.web.access import Access, Means, Role, Token, User, Visitor
from trax.web.application import create
from trax.web.limits import WebLimits
from trax.web.passwords import hashed

__all__ = ["Access", "Means", "Role", "Token", "User", "Visitor", "WebLimits", "create", "hashed"]
