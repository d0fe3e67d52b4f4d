"""`/groups`: list, update, trigger and cancel manifest groups."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel
from starlette.responses import Response

from trax.bounds import LONGEST_NAME
from trax.records import ManifestGroup
from trax.records.nouns import GROUPS
from trax.web.api.bodies import Body, CancelledIds, JsonRoute
from trax.web.api.paging import JsonWriter, Priority, WholeNumber, add_list_route
from trax.web.context import InjectedContext

router = APIRouter(prefix="/groups", tags=["groups"], route_class=JsonRoute)

GroupName = Annotated[str, Path(min_length=1, max_length=LONGEST_NAME)]


class GroupChange(Body):
    """Changes of a group. Omitted fields stay unchanged; `max_active_jobs: null` means no limit."""

    max_active_jobs: WholeNumber | None = None
    priority: Priority = 0
    enabled: bool = True


class TriggerCount(BaseModel):
    """How many entries were enqueued."""

    triggered: int


group_response = JsonWriter(ManifestGroup)
trigger_response, cancel_response = JsonWriter(TriggerCount), JsonWriter(CancelledIds)


add_list_route(router, GROUPS, ManifestGroup)


@router.get("/{name:name}", response_model=ManifestGroup)
async def get_group(context: InjectedContext, name: GroupName) -> Response:
    """Get one group."""
    return group_response(await context.app.groups.get(name))


@router.patch("/{name:name}", response_model=ManifestGroup)
async def update_group(context: InjectedContext, name: GroupName, body: GroupChange) -> Response:
    """Change the limit or priority of a group, or enable or disable it, for all servers."""
    return group_response(await context.app.groups.update(name, **body.model_dump(exclude_unset=True)))


@router.post("/{name:name}/trigger", response_model=TriggerCount)
async def trigger_group(context: InjectedContext, name: GroupName) -> Response:
    """Trigger every enabled manifest of the group that has no parent."""
    return trigger_response(TriggerCount(triggered=await context.app.groups.trigger(name)))


@router.post("/{name:name}/cancel", response_model=CancelledIds)
async def cancel_group(context: InjectedContext, name: GroupName) -> Response:
    """Cancel all executions of the group that are in progress."""
    run_ids = await context.app.groups.cancel(name)
    return cancel_response(CancelledIds(cancelled=list(run_ids)))
