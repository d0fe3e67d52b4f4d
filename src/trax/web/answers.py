"""Errors as answers: problem+json for programs, a page for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.web.pages.problem_page import problem_page
from trax.web.problems import Refusal, as_json, problem_of
from trax.web.room import is_for_program

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


async def answer_to(request: Request, error: Exception) -> Response:
    """What whoever sent the request is told about an error."""
    told = problem_of(error)
    headers = error.headers if isinstance(error, Refusal) else None
    if is_for_program(request):
        return as_json(told, headers)
    answer = await problem_page(request, told)
    answer.headers.update(headers or {})
    return answer
