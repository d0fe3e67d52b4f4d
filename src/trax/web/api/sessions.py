"""`/sessions`: list and end browser sessions of the dashboard."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError
from starlette.responses import Response

from trax.errors import NotFound
from trax.records.audit import WebSession
from trax.web.access import Means, Visitor
from trax.web.api.bodies import Body, JsonRoute
from trax.web.api.paging import ApiPage, JsonWriter, ListQueryById, NameQuery, PathId, load_page
from trax.web.context import InjectedContext, InjectedVisitor, WebContext

router = APIRouter(prefix="/sessions", tags=["sessions"], route_class=JsonRoute)


class SessionListQuery(ListQueryById):
    """Filters for sessions."""

    user: NameQuery = None


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
    if not _may_list(visitor, user):
        return []
    scope = user if visitor.may_change else visitor.name
    return await context.app.sessions.list(user=scope, before=before, limit=limit)


def _may_list(visitor: Visitor, user: str | None) -> bool:
    return visitor.may_change or (visitor.means is Means.SESSION and user in {None, visitor.name})


@router.get("", response_model=ApiPage[WebSession])
async def list_sessions(
    context: InjectedContext, visitor: InjectedVisitor, query: Annotated[SessionListQuery, Query()]
) -> Response:
    """List sessions, newest first. A viewer sees only their own."""
    if not _may_list(visitor, query.user):
        return page_response(ApiPage[WebSession](items=[]))
    if not visitor.may_change:
        query = query.model_copy(update={"user": visitor.name})
    return page_response(await load_page(context.app.sessions, query, context.mask))


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
