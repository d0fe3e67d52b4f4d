"""`/api/v1`: the same nouns and verbs as the Python resources.

Each module is one noun. Handlers are thin: they ask the app, and write what it says as JSON. Reads are open
to viewers and changes to operators; that is the guard's affair and not theirs.
"""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Depends

from trax.web.api import (
    audit,
    bodies,
    dead_letters,
    events,
    executions,
    groups,
    logs,
    manifests,
    queue,
    sessions,
    settings,
    stats,
    trains,
    why,
    workers,
)
from trax.web.api.document import get_document

PREFIX: Final = "/api/v1"
NOUNS: Final = (
    trains,
    manifests,
    groups,
    queue,
    executions,
    dead_letters,
    logs,
    workers,
    settings,
    stats,
    why,
    audit,
    sessions,
    events,
)


def router() -> APIRouter:
    whole = APIRouter(prefix=PREFIX, dependencies=[Depends(bodies.check_request)])
    for noun in NOUNS:
        whole.include_router(noun.router)
    whole.add_api_route("/openapi.json", get_document, include_in_schema=False)
    return whole
