"""Error responses: problem+json for programs, a page for people."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse
from starlette.routing import Match

from trax.web.context import current_url, is_for_program
from trax.web.pages.rendering import Assets, show_plain
from trax.web.problems import Refusal, problem_of, problem_response

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from trax.web.problems import Problem


REDIRECTS: Final = range(300, 400)

RETRYABLE: Final = (429, 500, 503)

"""Statuses for which the page offers a retry."""

ACCESS_CODES: Final = ("not_authenticated", "not_allowed")

"""Codes of clients without access: the page has no link to the home page."""


METHODS: Final = ("DELETE", "GET", "OPTIONS", "PATCH", "POST", "PUT")


async def error_response(request: Request, error: Exception) -> Response:
    """Build the response for an exception."""
    problem = problem_of(error)
    headers = dict(error.headers or {}) if isinstance(error, Refusal | HTTPException) else {}
    if problem.status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(_methods_of_path(request))
    if is_for_program(request):
        return problem_response(problem, headers)
    response = await problem_page(request, problem)
    response.headers.update(headers)
    return response


def _methods_of_path(request: Request) -> list[str]:
    """The methods of all routes that match the path; the framework reports those of the first one only."""
    if isinstance(request.scope.get("endpoint"), Assets):
        return ["GET", "HEAD"]  # the mount matches any method and rejects the others itself
    scope = {"type": "http", "path": request.scope["path"], "root_path": request.scope.get("root_path", "")}
    methods = {
        method
        for method in METHODS
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in request.app.routes)
    }
    return sorted(methods | ({"HEAD"} if "GET" in methods else set()))


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
