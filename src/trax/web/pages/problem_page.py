"""What a person is told when a page cannot be shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import RedirectResponse

from trax.web.pages.rendering import show_plainly
from trax.web.room import here

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from trax.web.problems import Problem

ELSEWHERE: Final = range(300, 400)
PASSING: Final = (429, 500, 503)
"""What may go better in a moment."""
OUTSIDE: Final = ("not_authenticated", "not_allowed")
"""Nobody is led home who may not enter."""


async def problem_page(request: Request, told: Problem) -> Response:
    """Whoever asks may be anybody: nothing is on it but the problem."""
    if told.status in ELSEWHERE:
        return RedirectResponse("", told.status)  # where to is said by whoever refused
    return show_plainly(
        request,
        "problem.html",
        status=told.status,
        problem=told,
        again=here(request) if told.status in PASSING and request.method == "GET" else None,
        is_inside=told.code not in OUTSIDE,
    )
