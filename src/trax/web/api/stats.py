"""How much runs, how well, how quickly."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from trax.records.stats import (
    Blocks,
    FailingTrain,
    GroupGraph,
    GroupStats,
    Home,
    States,
    Throughput,
    TrainDuration,
)
from trax.records.tally import Span
from trax.web.api.bodies import JsonRoute
from trax.web.api.paging import AfterName, Limit, NameQuery
from trax.web.api.writing import Writes
from trax.web.room import TheRoom

router = APIRouter(prefix="/stats", tags=["stats"], route_class=JsonRoute)

Admin = Annotated[bool, Query(description="With those of the administrative trains.")]

home, throughput, blocks, states = Writes(Home), Writes(Throughput), Writes(Blocks), Writes(States)
durations, failing = Writes(list[TrainDuration]), Writes(list[FailingTrain])
groups, graph = Writes(list[GroupStats]), Writes(GroupGraph)


class Graph(BaseModel):
    """Which groups wait for which. An edge is a pair: the second waits for the first."""

    groups: list[str]
    edges: list[Annotated[list[str], Field(min_length=2, max_length=2)]]
    exact: bool


@router.get("/home", response_model=Home)
async def get_home(room: TheRoom, admin: Admin = False) -> Response:
    """The numbers at the top; today means since midnight UTC."""
    return home(await room.app.stats.home(admin=admin))


@router.get("/throughput", response_model=Throughput)
async def get_throughput(room: TheRoom, by: Span = Span.MINUTE, admin: Admin = False) -> Response:
    """What ended in each minute of the last hour, or in each hour of the last day."""
    return throughput(await room.app.stats.throughput(by, admin=admin))


@router.get("/durations", response_model=list[TrainDuration])
async def get_durations(room: TheRoom, limit: Limit = 10, admin: Admin = False) -> Response:
    """How long completed runs took within seven days, the slowest trains first."""
    return durations(list(await room.app.stats.durations(limit=limit, admin=admin)))


@router.get("/failing", response_model=list[FailingTrain])
async def get_failing(room: TheRoom, limit: Limit = 10, admin: Admin = False) -> Response:
    """Which trains failed most often within seven days."""
    return failing(list(await room.app.stats.failing(limit=limit, admin=admin)))


@router.get("/blocks", response_model=Blocks)
async def get_blocks(room: TheRoom, admin: Admin = False) -> Response:
    """Seven days in blocks of six hours: the three busiest trains, and the others together."""
    return blocks(await room.app.stats.blocks(admin=admin))


@router.get("/states", response_model=States)
async def get_states(room: TheRoom, admin: Admin = False) -> Response:
    """Runs by state: those under way, and those that ended within seven days."""
    return states(await room.app.stats.states(admin=admin))


@router.get("/groups", response_model=list[GroupStats])
async def get_group_stats(room: TheRoom, after: AfterName = None, limit: Limit = 50) -> Response:
    """Groups with their counters, in the order of their names."""
    return groups(await room.app.stats.groups(after=after, limit=limit))


@router.get("/graph", response_model=Graph)
async def get_graph(room: TheRoom, group: NameQuery = None) -> Response:
    """Which groups wait for which: all of them, or those next to one."""
    return graph(await room.app.stats.graph(group))
