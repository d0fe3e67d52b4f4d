"""`/audit`: list the actions of operators, and undo some of them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from trax.records.audit import AuditEntry
from trax.web.api.bodies import Body, JsonRoute
from trax.web.api.paging import ApiPage, Full, JsonWriter, ListQueryById, Moment, NameQuery, PathId, load_page
from trax.web.context import InjectedContext

router = APIRouter(prefix="/audit", tags=["audit"], route_class=JsonRoute)


class AuditListQuery(ListQueryById):
    """Filters for actions."""

    actor: NameQuery = None
    action: NameQuery = None
    noun: NameQuery = None
    target: NameQuery = None
    since: Moment | None = None
    until: Moment | None = None
    full: Full = True


class Undo(Body):
    """`force`: undo even if the value was changed again since."""

    force: bool = False


entry_response, page_response = JsonWriter(AuditEntry), JsonWriter(ApiPage[AuditEntry])


@router.get("", response_model=ApiPage[AuditEntry])
async def list_audit(context: InjectedContext, query: Annotated[AuditListQuery, Query()]) -> Response:
    """List actions, newest first. `action` is e.g. `groups.update`, `target` the id or name changed."""
    return page_response(await load_page(context.app.audit, query, context.mask))


@router.get("/{audit_id:row_id}", response_model=AuditEntry)
async def get_audit(context: InjectedContext, audit_id: PathId) -> Response:
    """Get one action."""
    return entry_response(await context.app.audit.get(audit_id))


@router.post("/{audit_id:row_id}/undo", response_model=AuditEntry)
async def undo_audit(context: InjectedContext, audit_id: PathId, body: Undo | None = None) -> Response:
    """Undo a change of settings or of a group; 409 if it was changed again since."""
    return entry_response(await context.app.audit.undo(audit_id, force=body.force if body else False))
