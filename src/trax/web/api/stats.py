"""`/stats`: throughput, durations, failures and states; `/workers`; `/events`: what has changed."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from trax.records.nouns import WORKERS
from trax.records.stats import (
    Blocks,
    FailingTrain,
    GroupGraph,
    GroupStats,
    Home,
    Span,
    States,
    Throughput,
    TrainDuration,
)
from trax.records.worker import WorkerView
from trax.web.access import Means
from trax.web.api.bodies import JsonRoute
from trax.web.api.paging import (
    AfterName,
    JsonWriter,
    Limit,
    NameQuery,
    PathId,
    add_list_route,
)
from trax.web.context import InjectedContext, InjectedVisitor
from trax.web.events import EventStream

router = APIRouter(prefix="/stats", tags=["stats"], route_class=JsonRoute)

Admin = Annotated[bool, Query(description="Include administrative trains.")]

home_response, throughput_response, blocks_response, states_response = (
    JsonWriter(Home),
    JsonWriter(Throughput),
    JsonWriter(Blocks),
    JsonWriter(States),
)
durations_response, failing_response = JsonWriter(list[TrainDuration]), JsonWriter(list[FailingTrain])
groups_response, graph_response = JsonWriter(list[GroupStats]), JsonWriter(GroupGraph)


class Graph(BaseModel):
    """Dependencies between groups. An edge is a pair: the second depends on the first."""

    groups: list[str]
    edges: list[Annotated[list[str], Field(min_length=2, max_length=2)]]
    exact: bool


@router.get("/home", response_model=Home)
async def get_home(context: InjectedContext, admin: Admin = False) -> Response:
    """Key figures of the home page; today begins at midnight UTC."""
    return home_response(await context.app.stats.home(admin=admin))


@router.get("/throughput", response_model=Throughput)
async def get_throughput(context: InjectedContext, by: Span = Span.MINUTE, admin: Admin = False) -> Response:
    """Ended executions per minute of the last hour, or per hour of the last day."""
    return throughput_response(await context.app.stats.throughput(by, admin=admin))


@router.get("/durations", response_model=list[TrainDuration])
async def get_durations(context: InjectedContext, limit: Limit = 10, admin: Admin = False) -> Response:
    """Durations of completed executions within seven days, slowest trains first."""
    return durations_response(list(await context.app.stats.durations(limit=limit, admin=admin)))


@router.get("/failing", response_model=list[FailingTrain])
async def get_failing(context: InjectedContext, limit: Limit = 10, admin: Admin = False) -> Response:
    """Trains with the most failures within seven days."""
    return failing_response(list(await context.app.stats.top_failures(limit=limit, admin=admin)))


@router.get("/blocks", response_model=Blocks)
async def get_blocks(context: InjectedContext, admin: Admin = False) -> Response:
    """Executions of seven days in blocks of six hours: the three busiest trains, and all others."""
    return blocks_response(await context.app.stats.blocks(admin=admin))


@router.get("/states", response_model=States)
async def get_states(context: InjectedContext, admin: Admin = False) -> Response:
    """Executions by state: active ones, and those that ended within seven days."""
    return states_response(await context.app.stats.states(admin=admin))


@router.get("/groups", response_model=list[GroupStats])
async def get_group_stats(context: InjectedContext, after: AfterName = None, limit: Limit = 50) -> Response:
    """Groups with their counts, by name."""
    return groups_response(await context.app.stats.groups(after=after, limit=limit))


@router.get("/graph", response_model=Graph)
async def get_graph(context: InjectedContext, group: NameQuery = None) -> Response:
    """Dependencies between groups: all of them, or those around one group."""
    return graph_response(await context.app.stats.graph(group))


workers_router = APIRouter(prefix="/workers", tags=["workers"], route_class=JsonRoute)


worker_response = JsonWriter(WorkerView)


add_list_route(workers_router, WORKERS, WorkerView)


@workers_router.get("/{worker_id:row_id}", response_model=WorkerView)
async def get_worker(context: InjectedContext, worker_id: PathId) -> Response:
    """Get one worker."""
    return worker_response(await context.app.workers.get(worker_id))


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
