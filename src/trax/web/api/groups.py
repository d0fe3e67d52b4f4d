"""Who shares a limit and a priority."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel
from starlette.responses import Response

from trax.bounds import LONGEST_NAME
from trax.records import ManifestGroup
from trax.web.api.bodies import Body, JsonRoute
from trax.web.api.manifests import Stopped
from trax.web.api.paging import AfterName, Limit, Page, Priority, WholeNumber, page
from trax.web.api.writing import Writes
from trax.web.room import TheRoom

router = APIRouter(prefix="/groups", tags=["groups"], route_class=JsonRoute)

GroupName = Annotated[str, Path(min_length=1, max_length=LONGEST_NAME)]


class GroupChange(Body):
    """What is left out stays as it is; `max_active_jobs: null` means no limit."""

    max_active_jobs: WholeNumber | None = None
    priority: Priority = 0
    enabled: bool = True


class Triggered(BaseModel):
    """How many entries were written."""

    triggered: int


one, some = Writes(ManifestGroup), Writes(Page[ManifestGroup])
triggered, stopped = Writes(Triggered), Writes(Stopped)


@router.get("", response_model=Page[ManifestGroup])
async def list_groups(room: TheRoom, after: AfterName = None, limit: Limit = 50) -> Response:
    """In the order of their names."""
    found = await room.app.groups.list(after=after, limit=limit)
    return some(page(found, limit, by="name"))


@router.get("/{name:name}", response_model=ManifestGroup)
async def get_group(room: TheRoom, name: GroupName) -> Response:
    return one(await room.app.groups.get(name))


@router.patch("/{name:name}", response_model=ManifestGroup)
async def update_group(room: TheRoom, name: GroupName, body: GroupChange) -> Response:
    """Change its limit, its priority or its switch, on every server at once."""
    return one(await room.app.groups.update(name, **body.model_dump(exclude_unset=True)))


@router.post("/{name:name}/trigger", response_model=Triggered)
async def trigger_group(room: TheRoom, name: GroupName) -> Response:
    """Start every enabled manifest of the group that depends on no other."""
    return triggered(Triggered(triggered=await room.app.groups.trigger(name)))


@router.post("/{name:name}/cancel", response_model=Stopped)
async def cancel_group(room: TheRoom, name: GroupName) -> Response:
    """Ask all its runs in progress to stop."""
    return stopped(Stopped(cancelled=await room.app.groups.cancel(name)))
