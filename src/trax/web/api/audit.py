"""`/audit`: list the actions of operators, and undo some of them."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from trax.records.audit import AuditEntry
from trax.records.nouns import AUDIT
from trax.web.api.bodies import Body, JsonRoute
from trax.web.api.paging import JsonWriter, PathId, add_list_route
from trax.web.context import InjectedContext

router = APIRouter(prefix="/audit", tags=["audit"], route_class=JsonRoute)


class Undo(Body):
    """`force`: undo even if the value was changed again since."""

    force: bool = False


entry_response = JsonWriter(AuditEntry)


add_list_route(router, AUDIT, AuditEntry)


@router.get("/{audit_id:row_id}", response_model=AuditEntry)
async def get_audit(context: InjectedContext, audit_id: PathId) -> Response:
    """Get one action."""
    return entry_response(await context.app.audit.get(audit_id))


@router.post("/{audit_id:row_id}/undo", response_model=AuditEntry)
async def undo_audit(context: InjectedContext, audit_id: PathId, body: Undo | None = None) -> Response:
    """Undo a change of settings or of a group; 409 if it was changed again since."""
    return entry_response(await context.app.audit.undo(audit_id, force=body.force if body else False))
