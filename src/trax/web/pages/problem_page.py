"""Error pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import RedirectResponse

from trax.web.pages.rendering import show_plain
from trax.web.room import current_url

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from trax.web.problems import Problem

REDIRECTS: Final = range(300, 400)
RETRYABLE: Final = (429, 500, 503)
"""Statuses for which the page offers a retry."""
ACCESS_CODES: Final = ("not_authenticated", "not_allowed")
"""Codes of clients without access: the page has no link to the home page."""


async def problem_page(request: Request, problem: Problem) -> Response:
    """Build an error page. The client may be unauthenticated, so it shows only the problem."""
    if problem.status in REDIRECTS:
        return RedirectResponse("", problem.status)  # the Location header comes with the Refusal
    return show_plain(
        request,
        "problem.html",
        status=problem.status,
        problem=problem,
        again=current_url(request) if problem.status in RETRYABLE and request.method == "GET" else None,
        is_inside=problem.code not in ACCESS_CODES,
    )
