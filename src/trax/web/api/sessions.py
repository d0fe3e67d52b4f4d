"""`/sessions`: list and end browser sessions of the dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter
from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError
from starlette.responses import Response

from trax.errors import NotFound
from trax.records.audit import WebSession
from trax.records.nouns import SESSIONS
from trax.web.access import Means, Visitor
from trax.web.api.bodies import Body, JsonRoute
from trax.web.api.paging import JsonWriter, PathId, add_list_route
from trax.web.context import InjectedContext

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


ended_response = JsonWriter(EndedSessions)


def restrict_sessions(visitor: Visitor, filters: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The sessions that a client may see: operators see all, others only their own, or None."""
    if visitor.may_change:
        return filters
    is_own = visitor.means is Means.SESSION and filters["user"] in {None, visitor.name}
    return {**filters, "user": visitor.name} if is_own else None


add_list_route(
    router, SESSIONS, WebSession, more_help=" A viewer sees only their own.", restrict=restrict_sessions
)


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
