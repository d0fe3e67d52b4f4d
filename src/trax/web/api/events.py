"""What changes, told as it happens."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from trax.web.events import EventStream
from trax.web.problems import Refusal, problem
from trax.web.room import TheRoom

router = APIRouter(prefix="/events", tags=["events"])

MARK = r"^[\w-]{1,100}$"
LAST = Query(pattern=MARK, description="As the header, for those who cannot send one.")


@router.get(
    "",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def list_events(
    room: TheRoom,
    last_event_id: Annotated[str | None, LAST] = None,
    last_seen: Annotated[str | None, Header(alias="Last-Event-ID", pattern=MARK)] = None,
) -> Response:
    """Server-sent events: `change` with the tags of what has changed, such as `{"tags": ["queue"]}`.

    Who comes back with the id of the last event is told what was missed meanwhile.
    """
    if room.fanout.is_full:
        raise Refusal(problem(503, "too many are watching already", code="too_many_viewers"))
    return EventStream(room.fanout, last_seen or last_event_id)
