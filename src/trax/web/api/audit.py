"""`/audit`: list the actions of operators, and undo some of them."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from trax.records.audit import AuditEntry
from trax.web.api.bodies import Body, JsonRoute
from trax.web.api.paging import After, ApiPage, JsonWriter, Limit, Moment, NameQuery, PathId, build_page
from trax.web.context import InjectedContext

router = APIRouter(prefix="/audit", tags=["audit"], route_class=JsonRoute)


class Undo(Body):
    """`force`: undo even if the value was changed again since."""

    force: bool = False


entry_response, page_response = JsonWriter(AuditEntry), JsonWriter(ApiPage[AuditEntry])


@router.get("", response_model=ApiPage[AuditEntry])
async def list_audit(
    context: InjectedContext,
    actor: NameQuery = None,
    action: NameQuery = None,
    noun: NameQuery = None,
    target: NameQuery = None,
    since: Moment | None = None,
    until: Moment | None = None,
    after: After = None,
    limit: Limit = 50,
) -> Response:
    """List actions, newest first. `action` is e.g. `groups.update`, `target` the id or name changed."""
    entries = await context.app.audit.list(
        actor=actor,
        action=action,
        noun=noun,
        target=target,
        since=since,
        until=until,
        before=after,
        limit=limit,
    )
    return page_response(build_page(entries, limit))


@router.get("/{audit_id:row_id}", response_model=AuditEntry)
async def get_audit(context: InjectedContext, audit_id: PathId) -> Response:
    """Get one action."""
    return entry_response(await context.app.audit.get(audit_id))


@router.post("/{audit_id:row_id}/undo", response_model=AuditEntry)
async def undo_audit(context: InjectedContext, audit_id: PathId, body: Undo | None = None) -> Response:
    """Undo a change of settings or of a group; 409 if it was changed again since."""
    return entry_response(await context.app.audit.undo(audit_id, force=body.force if body else False))
