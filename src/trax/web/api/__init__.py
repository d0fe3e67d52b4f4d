"""`/api/v1`: the same nouns and verbs as the Python resources.

Each module is one noun. Handlers are thin: they call the app and write the result as JSON. The guard checks
access before any handler runs: viewers may read, operators may also change.

trains.py        `/trains`
manifests.py     `/manifests`
groups.py        `/groups`
queue.py         `/queue`
executions.py    `/executions`, `/logs`, `/why`
dead_letters.py  `/dead-letters`
stats.py         `/stats`, `/workers`, `/events`
settings.py      `/settings`
audit.py         `/audit`
sessions.py      `/sessions`

bodies.py        request bodies, and their validation
paging.py        lists: routes and query parameters from a noun, pages, JSON responses
document.py      the OpenAPI document
"""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Depends

from trax.web.api import (
    audit,
    bodies,
    dead_letters,
    executions,
    groups,
    manifests,
    queue,
    sessions,
    settings,
    stats,
    trains,
)
from trax.web.api.document import get_document

PREFIX: Final = "/api/v1"
ROUTERS: Final = (
    trains.router,
    manifests.router,
    groups.router,
    queue.router,
    executions.router,
    dead_letters.router,
    executions.logs_router,
    stats.workers_router,
    settings.router,
    stats.router,
    executions.why_router,
    audit.router,
    sessions.router,
    stats.events_router,
)


def router() -> APIRouter:
    api_router = APIRouter(prefix=PREFIX, dependencies=[Depends(bodies.check_request)])
    for router_of_noun in ROUTERS:
        api_router.include_router(router_of_noun)
    api_router.add_api_route("/openapi.json", get_document, include_in_schema=False)
    return api_router
