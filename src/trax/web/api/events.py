"""What changes, told as it happens."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from trax.web.access import Means
from trax.web.api.bodies import JsonRoute
from trax.web.events import EventStream
from trax.web.room import TheRoom, TheVisitor

router = APIRouter(prefix="/events", tags=["events"], route_class=JsonRoute)

MARK = r"^[\w-]{1,100}$"
LAST = Query(pattern=MARK, description="As the header, for those who cannot send one.")


@router.get(
    "",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def list_events(
    request: Request,
    room: TheRoom,
    visitor: TheVisitor,
    last_event_id: Annotated[str | None, LAST] = None,
    last_seen: Annotated[str | None, Header(alias="Last-Event-ID", pattern=MARK)] = None,
) -> Response:
    """Server-sent events: `change` with the tags of what has changed, such as `{"tags": ["queue"]}`.

    Who comes back with the id of the last event is told what was missed meanwhile. 503 or 429: too many are
    open, in all or of this visitor.
    """
    who = f"{visitor.means}:{visitor.name}"
    if visitor.means is Means.NOBODY:
        who = request.client.host if request.client else ""
    return EventStream(room.fanout, last_seen or last_event_id, who)
