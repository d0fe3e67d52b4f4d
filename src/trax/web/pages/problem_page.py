"""What a person is told when a page cannot be shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse

from trax.web.pages.rendering import show_plainly

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from trax.web.problems import Problem

ELSEWHERE = range(300, 400)


async def problem_page(request: Request, told: Problem) -> Response:
    """Whoever asks may be anybody: nothing is on it but the problem."""
    if told.status in ELSEWHERE:
        return RedirectResponse("", told.status)  # where to is said by whoever refused
    return show_plainly(request, "problem.html", status=told.status, problem=told)
