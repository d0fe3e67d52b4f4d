"""Coming in and going out."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from trax.web.login import begin_session, end_session, log_in, safe_next
from trax.web.pages.acts import posted
from trax.web.pages.rendering import show_plainly
from trax.web.problems import Refusal
from trax.web.room import csrf_token, link

router = APIRouter()
LONGEST_PASSWORD: Final = 1000


@router.get("/login")
async def login(request: Request) -> Response:
    return _form(request, safe_next(request.query_params.get("next")))


@router.post("/login")
async def enter(request: Request) -> Response:
    form = await posted(request)
    name, onward = form.get("name"), safe_next(form.get("next"))
    password = next(iter(form.all("password")), "")[:LONGEST_PASSWORD]
    try:
        session = await log_in(request, name, password)
    except Refusal as refused:
        told = refused.problem
        answer = _form(request, onward, name=name, problem=told.detail.capitalize(), status=told.status)
        answer.headers.update(refused.headers)
        return answer
    path, _, query = onward.partition("?")
    answer = RedirectResponse(link(request, path) + (f"?{query}" if query else ""), 303)
    begin_session(request, answer, session)
    return answer


@router.post("/logout")
async def leave(request: Request) -> Response:
    answer = RedirectResponse(link(request, "/login"), 303)
    end_session(request, answer)
    return answer


def _form(request: Request, onward: str, *, name: str = "", problem: str = "", status: int = 200) -> Response:
    return show_plainly(
        request,
        "login.html",
        status=status,
        csrf=csrf_token(request),
        next=onward,
        name=name,
        problem=problem,
    )
