"""Error responses: problem+json for the API, a page for the dashboard."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException
from starlette.routing import Match

from trax.web.pages.assets import Assets
from trax.web.pages.problem_page import problem_page
from trax.web.problems import Refusal, problem_of, problem_response
from trax.web.room import is_for_program

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

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
