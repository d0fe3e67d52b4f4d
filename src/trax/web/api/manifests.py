"""Which train runs when."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel
from starlette.responses import Response

from trax.bounds import LONGEST_NAME
from trax.records import Manifest, Reason, ScheduleType, WorkQueueEntry
from trax.web.api.bodies import Body, JsonRoute
from trax.web.api.paging import AskedByName, NameQuery, Page, Seconds, page_asked
from trax.web.api.writing import Writes, shown
from trax.web.room import TheRoom

router = APIRouter(prefix="/manifests", tags=["manifests"], route_class=JsonRoute)

ExternalId = Annotated[str, Path(min_length=1, max_length=LONGEST_NAME, description="Its external id.")]


class ManifestsAsked(AskedByName):
    """Which manifests."""

    group: NameQuery = None
    train: NameQuery = None
    enabled: bool | None = None
    schedule_type: ScheduleType | None = None
    depends_on: NameQuery = None
    text: Annotated[str | None, Query(max_length=200, description="Somewhere in its external id.")] = None
    retired: Annotated[bool, Query(description="Only retired ones; otherwise they are left out.")] = False


class Trigger(Body):
    """When the extra run may begin."""

    delay_seconds: Seconds | None = None


class Stopped(BaseModel):
    """How many runs in progress were asked to stop."""

    cancelled: int


one, some = Writes(Manifest), Writes(Page[Manifest])
entry, stopped, reasons = Writes(WorkQueueEntry), Writes(Stopped), Writes(list[Reason])


@router.get("", response_model=Page[Manifest])
async def list_manifests(room: TheRoom, asked: Annotated[ManifestsAsked, Query()]) -> Response:
    """In the order of their external ids."""
    return some(await page_asked(room.app.manifests, asked, room.mask))


@router.get("/{external_id:name}/why", response_model=list[Reason])
async def why_manifest(room: TheRoom, external_id: ExternalId) -> Response:
    """What keeps it from running; what holds it now comes first."""
    return reasons(await room.app.why(external_id))


@router.get("/{external_id:name}", response_model=Manifest)
async def get_manifest(room: TheRoom, external_id: ExternalId) -> Response:
    return await _as_it_is(room, external_id)


@router.post("/{external_id:name}/enable", response_model=Manifest)
async def enable_manifest(room: TheRoom, external_id: ExternalId) -> Response:
    await room.app.manifests.enable(external_id)
    return await _as_it_is(room, external_id)


@router.post("/{external_id:name}/disable", response_model=Manifest)
async def disable_manifest(room: TheRoom, external_id: ExternalId) -> Response:
    """No new entries are written; those in the queue already are not withdrawn."""
    await room.app.manifests.disable(external_id)
    return await _as_it_is(room, external_id)


@router.post("/{external_id:name}/trigger", response_model=WorkQueueEntry, status_code=201)
async def trigger_manifest(room: TheRoom, external_id: ExternalId, body: Trigger | None = None) -> Response:
    """An extra run, whatever the schedule says: now, or after a delay."""
    seconds = body.delay_seconds if body else None
    delay = None if seconds is None else timedelta(seconds=seconds)
    queued = await room.app.manifests.trigger(external_id, delay=delay)
    return entry(shown(queued, room.mask), 201)


@router.post("/{external_id:name}/cancel", response_model=Stopped)
async def cancel_manifest(room: TheRoom, external_id: ExternalId) -> Response:
    """Ask its runs in progress to stop."""
    return stopped(Stopped(cancelled=await room.app.manifests.cancel(external_id)))


@router.delete("/{external_id:name}", status_code=204)
async def delete_manifest(room: TheRoom, external_id: ExternalId) -> Response:
    """Retire it: it stops firing, its entries are withdrawn, its history and dead letters stay."""
    await room.app.manifests.delete(external_id)
    return Response(status_code=204)


async def _as_it_is(room: TheRoom, external_id: str) -> Response:
    return one(shown(await room.app.manifests.get(external_id), room.mask))
