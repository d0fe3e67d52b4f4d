"""`/health`, `/health/live` and `/metrics`, for monitoring and load balancers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from trax.inspect.status import status
from trax.records.status import Condition, health_of
from trax.web.api.paging import JsonWriter
from trax.web.context import InjectedContext
from trax.web.metrics import MEDIA_TYPE

router = APIRouter(tags=["health"])


class HealthReport(BaseModel):
    """State of the installation, with counts.

    Counting stops at 10,000, which keeps this request cheap. `atLeast` names the counts that stopped there.
    """

    model_config = ConfigDict(serialize_by_alias=True)

    status: Condition
    queue_depth: Annotated[int, Field(alias="queueDepth")]
    in_progress: Annotated[int, Field(alias="inProgress")]
    failed_last_hour: Annotated[int, Field(alias="failedLastHour")]
    dead_letters: Annotated[int, Field(alias="deadLetters")]
    at_least: Annotated[list[str], Field(alias="atLeast")]
    problems: list[str]


class Alive(BaseModel):
    """The process is running."""

    status: Condition


report_response, alive_response = JsonWriter(HealthReport), JsonWriter(Alive)


@router.get("/health", response_model=HealthReport)
async def get_health(context: InjectedContext) -> Response:
    """Health of the installation; 503 if the database cannot be reached.

    `degraded` while dead letters await intervention, after more than ten failures within an hour, while
    servers of one app declare different manifests or groups, and while turns of a loop fail.
    """
    health = health_of(await status(context.app.context.store, context.app.context.live))
    return report_response(
        HealthReport.model_construct(
            status=health.condition,
            queue_depth=health.queue_depth,
            in_progress=health.in_progress,
            failed_last_hour=health.failed_last_hour,
            dead_letters=health.dead_letters,
            at_least=[str(HealthReport.model_fields[name].alias) for name in health.at_least],
            problems=list(health.problems),
        )
    )


@router.get("/health/live", response_model=Alive)
async def get_liveness() -> Response:
    """Liveness of this process. Reads no database and needs no authentication."""
    return alive_response(Alive(status=Condition.HEALTHY))


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def get_metrics(context: InjectedContext) -> Response:
    """Metrics in the Prometheus text format."""
    return Response(await context.metrics.text(), media_type=MEDIA_TYPE)
