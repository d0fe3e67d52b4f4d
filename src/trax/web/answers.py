"""Errors as answers: problem+json for programs, a page for people."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException
from starlette.routing import Match

from trax.web.pages.assets import Assets
from trax.web.pages.problem_page import problem_page
from trax.web.problems import Refusal, as_json, problem_of
from trax.web.room import is_for_program

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

METHODS: Final = ("DELETE", "GET", "OPTIONS", "PATCH", "POST", "PUT")


async def answer_to(request: Request, error: Exception) -> Response:
    """What whoever sent the request is told about an error."""
    told = problem_of(error)
    headers = dict(error.headers or {}) if isinstance(error, Refusal | HTTPException) else {}
    if told.status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(_allowed_methods(request))
    if is_for_program(request):
        return as_json(told, headers)
    answer = await problem_page(request, told)
    answer.headers.update(headers)
    return answer


def _allowed_methods(request: Request) -> list[str]:
    """The methods of all routes that share the path; the framework names those of the first one only."""
    if isinstance(request.scope.get("endpoint"), Assets):
        return ["GET", "HEAD"]  # a mount takes any, and refuses the others itself
    asked = {"type": "http", "path": request.scope["path"], "root_path": request.scope.get("root_path", "")}
    taken = {
        method
        for method in METHODS
        if any(route.matches({**asked, "method": method})[0] is Match.FULL for route in request.app.routes)
    }
    return sorted(taken | ({"HEAD"} if "GET" in taken else set()))
