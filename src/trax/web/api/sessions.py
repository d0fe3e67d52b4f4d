"""`/sessions`: list and end browser sessions of the dashboard."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from fastapi import APIRouter
from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError
from starlette.responses import Response

from trax.errors import NotFound
from trax.records.web_session import WebSession
from trax.web.access import Means, Visitor
from trax.web.api.bodies import Body, JsonRoute
from trax.web.api.paging import After, ApiPage, JsonWriter, Limit, NameQuery, PathId, build_page
from trax.web.context import InjectedContext, InjectedVisitor, WebContext

router = APIRouter(prefix="/sessions", tags=["sessions"], route_class=JsonRoute)


class EndSessions(Body):
    """Which sessions to end: those of one user, or all."""

    user: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    all: Literal[True] | None = None

    @model_validator(mode="after")
    def _check_exactly_one(self) -> Self:
        if (self.user is None) == (self.all is None):
            raise PydanticCustomError("chosen", "give either user or all")
        return self


class EndedSessions(BaseModel):
    """Ids of the sessions that were ended."""

    ids: list[int]


page_response, ended_response = JsonWriter(ApiPage[WebSession]), JsonWriter(EndedSessions)


async def sessions_for(
    context: WebContext, visitor: Visitor, *, user: str | None, before: int | None, limit: int
) -> list[WebSession]:
    """List the sessions that the client may see: operators see all, others only their own."""
    if not visitor.may_change:
        if visitor.means is not Means.SESSION or user not in {None, visitor.name}:
            return []
        user = visitor.name
    return await context.app.sessions.list(user=user, before=before, limit=limit)


@router.get("", response_model=ApiPage[WebSession])
async def list_sessions(
    context: InjectedContext,
    visitor: InjectedVisitor,
    user: NameQuery = None,
    after: After = None,
    limit: Limit = 50,
) -> Response:
    """List sessions, newest first. A viewer sees only their own."""
    sessions = await sessions_for(context, visitor, user=user, before=after, limit=limit)
    return page_response(build_page(sessions, limit))


@router.delete("/{session_id:row_id}", response_model=EndedSessions)
async def end_session(context: InjectedContext, session_id: PathId) -> Response:
    """End one session: immediately on this server, within seconds on others."""
    ids = await context.app.sessions.end([session_id])
    if not ids:
        raise NotFound(f"there is no session {session_id}; it has ended or expired")
    return ended_response(EndedSessions(ids=ids))


@router.post("/end", response_model=EndedSessions)
async def end_sessions(context: InjectedContext, body: EndSessions) -> Response:
    """End all sessions of a user, or of all users."""
    return ended_response(EndedSessions(ids=await context.app.sessions.end_all(user=body.user)))
