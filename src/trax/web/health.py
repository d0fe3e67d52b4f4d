"""Whether all is well, for monitors and load balancers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from trax.host.status import status
from trax.records.health import Condition, health_of
from trax.web.api.writing import Writes
from trax.web.metrics import MEDIA_TYPE
from trax.web.room import TheRoom

router = APIRouter(tags=["health"])


class HealthReport(BaseModel):
    """The names are those that monitors of Trax have always read.

    Counting stops at 10,000, so that asking costs little. `atLeast` names the numbers for which it did: there
    may be more.
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
    """That the process answers."""

    status: Condition


report, alive = Writes(HealthReport), Writes(Alive)


@router.get("/health", response_model=HealthReport)
async def get_health(room: TheRoom) -> Response:
    """Degraded while dead letters wait, or after more than ten failures in an hour; 503: no database.

    Also while servers of one app declare different manifests.
    """
    found = health_of(await status(room.app.parts))
    return report(
        HealthReport.model_construct(
            status=found.condition,
            queue_depth=found.queue_depth,
            in_progress=found.in_progress,
            failed_last_hour=found.failed_last_hour,
            dead_letters=found.dead_letters,
            at_least=[str(HealthReport.model_fields[name].alias) for name in found.at_least],
            problems=list(found.problems),
        )
    )


@router.get("/health/live", response_model=Alive)
async def get_liveness() -> Response:
    """Whether this process answers; it asks no database, and anybody may ask it."""
    return alive(Alive(status=Condition.HEALTHY))


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def get_metrics(room: TheRoom) -> Response:
    """What is measured, in the text format of Prometheus."""
    return Response(await room.metrics.text(), media_type=MEDIA_TYPE)
