"""`/executions`: list, cancel and rerun executions; `/logs`: their log lines; `/why`: reasons."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from trax.bounds import LARGEST_ID, LONGEST_NAME
from trax.records import LogLine, Metadata, Reason, WorkQueueEntry
from trax.records.nouns import EXECUTIONS, LOGS
from trax.web.api.bodies import CancelledIds, Ids, JsonRoute
from trax.web.api.paging import (
    After,
    ApiPage,
    Before,
    JsonWriter,
    Limit,
    PathId,
    add_list_route,
    mask_record,
)
from trax.web.api.trains import rerun
from trax.web.context import InjectedContext
from trax.web.problems import FieldProblem, Refusal, problem

router = APIRouter(prefix="/executions", tags=["executions"], route_class=JsonRoute)


run_response = JsonWriter(Metadata)
lines_response, entry_response, cancel_response = (
    JsonWriter(ApiPage[LogLine]),
    JsonWriter(WorkQueueEntry),
    JsonWriter(CancelledIds),
)


add_list_route(router, EXECUTIONS, Metadata)


@router.get("/{metadata_id:row_id}", response_model=Metadata)
async def get_execution(context: InjectedContext, metadata_id: PathId) -> Response:
    """Get one execution."""
    return run_response(mask_record(await context.app.executions.get(metadata_id), context.mask))


@router.get("/{metadata_id:row_id}/logs", response_model=ApiPage[LogLine])
async def list_logs(
    context: InjectedContext,
    metadata_id: PathId,
    before: Before = None,
    after: After = None,
    limit: Limit = 100,
) -> Response:
    """List the log lines of an execution, oldest first; `before=previous` goes back."""
    found = await context.app.executions.logs(metadata_id, before=before, after=after, limit=limit)
    goes_back, is_full = before is not None and after is None, len(found) >= limit
    following = found[-1].id if found and (is_full or goes_back) else None
    previous = found[0].id if found and (after is not None or (is_full and goes_back)) else None
    return lines_response(
        ApiPage[LogLine].model_construct(items=list(found), next=following, previous=previous)
    )


@router.post("/cancel", response_model=CancelledIds)
async def cancel_executions(context: InjectedContext, body: Ids) -> Response:
    """Cancel executions that have not ended. One in progress stops within a heartbeat."""
    stopped = await context.app.executions.cancel(body.ids)
    skipped = len(set(body.ids)) - len(stopped)
    return cancel_response(CancelledIds(cancelled=list(stopped), skipped=skipped))


@router.post("/{metadata_id:row_id}/cancel", response_model=Metadata)
async def cancel_execution(context: InjectedContext, metadata_id: PathId) -> Response:
    """Cancel one execution; 409 if it has already ended."""
    stopped = await context.app.executions.cancel([metadata_id])
    run = await context.app.executions.get(metadata_id)
    if not stopped:
        raise Refusal(problem(409, f"execution {metadata_id} is already {run.state}"))
    return run_response(mask_record(run, context.mask))


@router.post("/{metadata_id:row_id}/rerun", response_model=WorkQueueEntry, status_code=201)
async def rerun_execution(context: InjectedContext, metadata_id: PathId) -> Response:
    """Enqueue the same train with the same input; 409 if its input or its train is not available."""
    return entry_response(mask_record(await rerun(context.app, metadata_id), context.mask), 201)


logs_router = APIRouter(prefix="/logs", tags=["logs"], route_class=JsonRoute)

add_list_route(
    logs_router,
    LOGS,
    LogLine,
    operation="list_log_lines",
    more_help=" A text search reads a bounded number of lines; see `complete`.",
)


why_router = APIRouter(prefix="/why", tags=["why"], route_class=JsonRoute)

reasons_response = JsonWriter(list[Reason])


@why_router.get("", response_model=list[Reason])
async def why(
    context: InjectedContext,
    manifest: Annotated[str | None, Query(min_length=1, max_length=LONGEST_NAME)] = None,
    entry: Annotated[int | None, Query(ge=0, le=LARGEST_ID)] = None,
) -> Response:
    """Reasons why a manifest or an entry is not running, the current one first."""
    target = entry if manifest is None else manifest
    if target is None or (manifest is not None and entry is not None):
        fields = tuple(
            FieldProblem(f"query.{name}", "give exactly one of manifest and entry")
            for name in ("manifest", "entry")
        )
        raise Refusal(problem(422, "give either a manifest or an entry", fields=fields))
    return reasons_response(await context.app.why(target))
