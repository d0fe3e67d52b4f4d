"""What gave up and waits for a person."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Self

from fastapi import APIRouter
from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError
from starlette.responses import Response

from trax.records import DeadLetter, DeadLetterStatus
from trax.records.dead_letter import DeadLetterGroup
from trax.web.api.bodies import Body, Chosen, JsonRoute, Note
from trax.web.api.paging import LONGEST_PAGE, After, Full, Limit, NameQuery, Page, PathId, page
from trax.web.api.writing import Writes, brief, shown
from trax.web.problems import Refusal, problem
from trax.web.room import TheRoom

router = APIRouter(prefix="/dead-letters", tags=["dead letters"], route_class=JsonRoute)


class Requeue(Chosen):
    """Which to queue again, and a note to leave on them.

    Of one kind of failure, `limit` takes the oldest few: one as a canary, and when it did well, the rest.
    """

    note: Note | None = None
    limit: Annotated[int, Field(ge=1, le=LONGEST_PAGE)] | None = None

    @model_validator(mode="after")
    def _check_limit(self) -> Self:
        if self.limit is not None and self.fingerprint is None:
            raise PydanticCustomError("limit", "limit goes with a fingerprint only")
        return self


class Acknowledge(Chosen):
    """Which are dealt with, and how."""

    note: Note


class RequeueOne(Body):
    """A note to leave on it."""

    note: Note | None = None


class AcknowledgeOne(Body):
    """How it was dealt with."""

    note: Note


class Requeued(BaseModel):
    """How many were queued again, and how many of those named somebody else had resolved."""

    requeued: int
    skipped: int


class Acknowledged(BaseModel):
    """How many are dealt with now, and how many of those named somebody else had resolved."""

    acknowledged: int
    skipped: int


one, some = Writes(DeadLetter), Writes(Page[DeadLetter])
requeued, acknowledged, groups = Writes(Requeued), Writes(Acknowledged), Writes(list[DeadLetterGroup])


@router.get("", response_model=Page[DeadLetter])
async def list_dead_letters(
    room: TheRoom,
    status: DeadLetterStatus | None = None,
    manifest: NameQuery = None,
    fingerprint: NameQuery = None,
    after: After = None,
    limit: Limit = 50,
    full: Full = False,
) -> Response:
    """Newest first."""
    found = await room.app.dead_letters.list(
        status=status, manifest=manifest, fingerprint=fingerprint, before=after, limit=limit, brief=not full
    )
    return some(page([brief(letter, room.mask) for letter in found], limit))


@router.get("/groups", response_model=list[DeadLetterGroup])
async def list_groups_of_dead_letters(room: TheRoom, limit: Limit = 50) -> Response:
    """What waits, by kind of failure, the most frequent first: each with its latest letter, briefly."""
    return groups(await room.app.dead_letters.groups(limit=limit, brief=True))


@router.get("/{dead_letter_id:row_id}", response_model=DeadLetter)
async def get_dead_letter(room: TheRoom, dead_letter_id: PathId) -> Response:
    return one(shown(await room.app.dead_letters.get(dead_letter_id), room.mask))


@router.post("/requeue", response_model=Requeued)
async def requeue_dead_letters(room: TheRoom, body: Requeue) -> Response:
    """Queue these again, those of one kind of failure, or all that wait."""
    letters = room.app.dead_letters
    some_of_them = partial(letters.requeue, body.ids, fingerprint=body.fingerprint, limit=body.limit)
    count = await (letters.requeue_all if body.all else some_of_them)(body.note)
    return requeued(Requeued(requeued=count, skipped=_skipped(body.ids, count)))


@router.post("/acknowledge", response_model=Acknowledged)
async def acknowledge_dead_letters(room: TheRoom, body: Acknowledge) -> Response:
    """Say that these are dealt with, those of one kind of failure, or all that wait."""
    letters = room.app.dead_letters
    some_of_them = partial(letters.acknowledge, body.ids, fingerprint=body.fingerprint)
    count = await (letters.acknowledge_all if body.all else some_of_them)(body.note)
    return acknowledged(Acknowledged(acknowledged=count, skipped=_skipped(body.ids, count)))


@router.post("/{dead_letter_id:row_id}/requeue", response_model=DeadLetter)
async def requeue_dead_letter(
    room: TheRoom, dead_letter_id: PathId, body: RequeueOne | None = None
) -> Response:
    """Queue one again; 409 if it is resolved already."""
    count = await room.app.dead_letters.requeue([dead_letter_id], body.note if body else None)
    return await _resolved(room, dead_letter_id, count)


@router.post("/{dead_letter_id:row_id}/acknowledge", response_model=DeadLetter)
async def acknowledge_dead_letter(room: TheRoom, dead_letter_id: PathId, body: AcknowledgeOne) -> Response:
    """Say that one is dealt with; 409 if it is resolved already."""
    count = await room.app.dead_letters.acknowledge([dead_letter_id], body.note)
    return await _resolved(room, dead_letter_id, count)


def _skipped(ids: list[int] | None, count: int) -> int:
    return 0 if ids is None else len(set(ids)) - count


async def _resolved(room: TheRoom, dead_letter_id: int, count: int) -> Response:
    found = await room.app.dead_letters.get(dead_letter_id)
    if not count:
        raise Refusal(problem(409, f"dead letter {dead_letter_id} is {found.status} already"))
    return one(shown(found, room.mask))
