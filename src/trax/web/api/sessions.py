"""Who is signed in to the dashboard, and signing them out."""

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
from trax.web.api.paging import After, Limit, NameQuery, Page, PathId, page
from trax.web.api.writing import Writes
from trax.web.room import Room, TheRoom, TheVisitor

router = APIRouter(prefix="/sessions", tags=["sessions"], route_class=JsonRoute)


class EndSessions(Body):
    """Whose sessions to end: those of one user, or all of them."""

    user: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    all: Literal[True] | None = None

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.user is None) == (self.all is None):
            raise PydanticCustomError("chosen", "say either user or all")
        return self


class EndedSessions(BaseModel):
    """The sessions that were ended."""

    ids: list[int]


some, ended = Writes(Page[WebSession]), Writes(EndedSessions)


async def sessions_for(
    room: Room, visitor: Visitor, *, user: str | None, before: int | None, limit: int
) -> list[WebSession]:
    """Sessions as a visitor may see them: operators see all, others only their own."""
    if not visitor.may_change:
        if visitor.means is not Means.SESSION or user not in {None, visitor.name}:
            return []
        user = visitor.name
    return await room.app.sessions.list(user=user, before=before, limit=limit)


@router.get("", response_model=Page[WebSession])
async def list_sessions(
    room: TheRoom, visitor: TheVisitor, user: NameQuery = None, after: After = None, limit: Limit = 50
) -> Response:
    """Newest first. A viewer sees only their own."""
    found = await sessions_for(room, visitor, user=user, before=after, limit=limit)
    return some(page(found, limit))


@router.delete("/{session_id:row_id}", response_model=EndedSessions)
async def end_session(room: TheRoom, session_id: PathId) -> Response:
    """Sign one browser out: at once on this server, on others within seconds."""
    ids = await room.app.sessions.end([session_id])
    if not ids:
        raise NotFound(f"there is no session {session_id}; it has ended, or expired")
    return ended(EndedSessions(ids=ids))


@router.post("/end", response_model=EndedSessions)
async def end_sessions(room: TheRoom, body: EndSessions) -> Response:
    """Sign a user out everywhere, or everybody."""
    return ended(EndedSessions(ids=await room.app.sessions.end_all(user=body.user)))
