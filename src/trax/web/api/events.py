"""`/events`: the stream of server-sent events."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from trax.web.access import Means
from trax.web.api.bodies import JsonRoute
from trax.web.events import EventStream
from trax.web.room import InjectedContext, InjectedVisitor

events_router = APIRouter(prefix="/events", tags=["events"], route_class=JsonRoute)

MARK = r"^[\w-]{1,100}$"
LAST = Query(pattern=MARK, description="Same as the header, for clients that cannot send it.")


@events_router.get(
    "",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def list_events(
    request: Request,
    context: InjectedContext,
    visitor: InjectedVisitor,
    last_event_id: Annotated[str | None, LAST] = None,
    last_seen: Annotated[str | None, Header(alias="Last-Event-ID", pattern=MARK)] = None,
) -> Response:
    """Server-sent events: `change` with the tags of what has changed, such as `{"tags": ["queue"]}`.

    A client that reconnects with the id of its last event receives what it missed. 503 or 429: too many
    streams are open, in total or for this client.
    """
    client = f"{visitor.means}:{visitor.name}"
    if visitor.means is Means.ANONYMOUS:
        client = request.client.host if request.client else ""
    return EventStream(context.fanout, last_seen or last_event_id, client)
