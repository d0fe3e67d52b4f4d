"""`/manifests`: list, enable, disable, trigger, cancel and delete manifests."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from trax.bounds import LONGEST_NAME
from trax.records import Manifest, Reason, WorkQueueEntry
from trax.records.nouns import MANIFESTS
from trax.settings.kinds import Delay
from trax.web.api.bodies import Body, CancelledIds, JsonRoute
from trax.web.api.paging import (
    JsonWriter,
    add_list_route,
    mask_record,
)
from trax.web.context import InjectedContext

router = APIRouter(prefix="/manifests", tags=["manifests"], route_class=JsonRoute)

ExternalId = Annotated[
    str, Path(min_length=1, max_length=LONGEST_NAME, description="External id of the manifest.")
]


class TriggerRequest(Body):
    """An optional delay of the run."""

    delay: Delay | None = None


manifest_response = JsonWriter(Manifest)
entry_response, cancel_response, reasons_response = (
    JsonWriter(WorkQueueEntry),
    JsonWriter(CancelledIds),
    JsonWriter(list[Reason]),
)


add_list_route(router, MANIFESTS, Manifest)


@router.get("/{external_id:name}/why", response_model=list[Reason])
async def why_manifest(context: InjectedContext, external_id: ExternalId) -> Response:
    """Reasons why the manifest is not running, the current one first."""
    return reasons_response(await context.app.why(external_id))


@router.get("/{external_id:name}", response_model=Manifest)
async def get_manifest(context: InjectedContext, external_id: ExternalId) -> Response:
    """Get one manifest."""
    return await _current_manifest(context, external_id)


@router.post("/{external_id:name}/enable", response_model=Manifest)
async def enable_manifest(context: InjectedContext, external_id: ExternalId) -> Response:
    """Enable a manifest."""
    await context.app.manifests.enable(external_id)
    return await _current_manifest(context, external_id)


@router.post("/{external_id:name}/disable", response_model=Manifest)
async def disable_manifest(context: InjectedContext, external_id: ExternalId) -> Response:
    """Disable a manifest. It enqueues no new entries; those already queued stay."""
    await context.app.manifests.disable(external_id)
    return await _current_manifest(context, external_id)


@router.post("/{external_id:name}/trigger", response_model=WorkQueueEntry, status_code=201)
async def trigger_manifest(
    context: InjectedContext, external_id: ExternalId, body: TriggerRequest | None = None
) -> Response:
    """Enqueue an extra run, now or after a delay, regardless of the schedule."""
    queued = await context.app.manifests.trigger(external_id, delay=body.delay if body else None)
    return entry_response(mask_record(queued, context.mask), 201)


@router.post("/{external_id:name}/cancel", response_model=CancelledIds)
async def cancel_manifest(context: InjectedContext, external_id: ExternalId) -> Response:
    """Cancel the executions of a manifest that are in progress."""
    run_ids = await context.app.manifests.cancel(external_id)
    return cancel_response(CancelledIds(cancelled=list(run_ids)))


@router.delete("/{external_id:name}", status_code=204)
async def delete_manifest(context: InjectedContext, external_id: ExternalId) -> Response:
    """Retire a manifest: it no longer fires and its queued entries are cancelled. Its history stays."""
    await context.app.manifests.delete(external_id)
    return Response(status_code=204)


async def _current_manifest(context: InjectedContext, external_id: str) -> Response:
    return manifest_response(mask_record(await context.app.manifests.get(external_id), context.mask))
