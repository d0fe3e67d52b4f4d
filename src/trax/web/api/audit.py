"""What operators did, and undoing some of it."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from trax.records.audit import AuditEntry
from trax.web.api.bodies import Body, JsonRoute
from trax.web.api.paging import After, Limit, Moment, NameQuery, Page, PathId, page
from trax.web.api.writing import Writes
from trax.web.room import TheRoom

router = APIRouter(prefix="/audit", tags=["audit"], route_class=JsonRoute)


class Undo(Body):
    """Whether to overwrite what was changed since."""

    force: bool = False


one, some = Writes(AuditEntry), Writes(Page[AuditEntry])


@router.get("", response_model=Page[AuditEntry])
async def list_audit(
    room: TheRoom,
    actor: NameQuery = None,
    action: NameQuery = None,
    noun: NameQuery = None,
    target: NameQuery = None,
    since: Moment | None = None,
    until: Moment | None = None,
    after: After = None,
    limit: Limit = 50,
) -> Response:
    """Newest first. `action` is such as `groups.update`, `target` an id or a name that it was done to."""
    found = await room.app.audit.list(
        actor=actor,
        action=action,
        noun=noun,
        target=target,
        since=since,
        until=until,
        before=after,
        limit=limit,
    )
    return some(page(found, limit))


@router.get("/{audit_id:row_id}", response_model=AuditEntry)
async def get_audit(room: TheRoom, audit_id: PathId) -> Response:
    return one(await room.app.audit.get(audit_id))


@router.post("/{audit_id:row_id}/undo", response_model=AuditEntry)
async def undo_audit(room: TheRoom, audit_id: PathId, body: Undo | None = None) -> Response:
    """Put back what a change of settings or of a group replaced; 409 if it was changed again since."""
    return one(await room.app.audit.undo(audit_id, force=body.force if body else False))
