"""`/dead-letters`: list, requeue and acknowledge jobs that were given up."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Self

from fastapi import APIRouter
from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError
from starlette.responses import Response

from trax.records import DeadLetter
from trax.records.dead_letter import DeadLetterGroup
from trax.records.nouns import DEAD_LETTERS
from trax.web.api.bodies import Body, DeadLetterSelection, JsonRoute, Note
from trax.web.api.paging import (
    LONGEST_PAGE,
    JsonWriter,
    Limit,
    PathId,
    add_list_route,
    mask_record,
)
from trax.web.context import InjectedContext
from trax.web.problems import Refusal, problem

router = APIRouter(prefix="/dead-letters", tags=["dead letters"], route_class=JsonRoute)


class Requeue(DeadLetterSelection):
    """Which dead letters to requeue, and an optional note.

    With a fingerprint, `limit` requeues only the oldest few: for example one as a canary before the rest.
    """

    note: Note | None = None
    limit: Annotated[int, Field(ge=1, le=LONGEST_PAGE)] | None = None

    @model_validator(mode="after")
    def _check_limit(self) -> Self:
        if self.limit is not None and self.fingerprint is None:
            raise PydanticCustomError("limit", "limit needs a fingerprint")
        return self


class Acknowledge(DeadLetterSelection):
    """Which dead letters to acknowledge, with a note on how they were resolved."""

    note: Note


class RequeueOne(Body):
    """An optional note."""

    note: Note | None = None


class AcknowledgeOne(Body):
    """A note on how it was resolved."""

    note: Note


class RequeueResult(BaseModel):
    """How many were requeued, and how many of the given ids were already resolved."""

    requeued: int
    skipped: int


class AcknowledgeResult(BaseModel):
    """How many were acknowledged, and how many of the given ids were already resolved."""

    acknowledged: int
    skipped: int


letter_response = JsonWriter(DeadLetter)
requeue_response, acknowledge_response, groups_response = (
    JsonWriter(RequeueResult),
    JsonWriter(AcknowledgeResult),
    JsonWriter(list[DeadLetterGroup]),
)


add_list_route(router, DEAD_LETTERS, DeadLetter)


@router.get("/groups", response_model=list[DeadLetterGroup])
async def list_groups_of_dead_letters(context: InjectedContext, limit: Limit = 50) -> Response:
    """Dead letters awaiting intervention, by kind of failure, most frequent first, with a sample of each."""
    return groups_response(await context.app.dead_letters.groups(limit=limit, brief=True))


@router.get("/{dead_letter_id:row_id}", response_model=DeadLetter)
async def get_dead_letter(context: InjectedContext, dead_letter_id: PathId) -> Response:
    """Get one dead letter."""
    return letter_response(mask_record(await context.app.dead_letters.get(dead_letter_id), context.mask))


@router.post("/requeue", response_model=RequeueResult)
async def requeue_dead_letters(context: InjectedContext, body: Requeue) -> Response:
    """Requeue dead letters: by id, by fingerprint, or all awaiting intervention."""
    letters = context.app.dead_letters
    requeue_selected = partial(letters.requeue, body.ids, fingerprint=body.fingerprint, limit=body.limit)
    count = await (letters.requeue_all if body.all else requeue_selected)(body.note)
    return requeue_response(RequeueResult(requeued=count, skipped=_skip_count(body.ids, count)))


@router.post("/acknowledge", response_model=AcknowledgeResult)
async def acknowledge_dead_letters(context: InjectedContext, body: Acknowledge) -> Response:
    """Acknowledge dead letters: by id, by fingerprint, or all awaiting intervention."""
    letters = context.app.dead_letters
    acknowledge_selected = partial(letters.acknowledge, body.ids, fingerprint=body.fingerprint)
    count = await (letters.acknowledge_all if body.all else acknowledge_selected)(body.note)
    return acknowledge_response(AcknowledgeResult(acknowledged=count, skipped=_skip_count(body.ids, count)))


@router.post("/{dead_letter_id:row_id}/requeue", response_model=DeadLetter)
async def requeue_dead_letter(
    context: InjectedContext, dead_letter_id: PathId, body: RequeueOne | None = None
) -> Response:
    """Requeue one dead letter; 409 if it is already resolved."""
    count = await context.app.dead_letters.requeue([dead_letter_id], body.note if body else None)
    return await _resolution_response(context, dead_letter_id, count)


@router.post("/{dead_letter_id:row_id}/acknowledge", response_model=DeadLetter)
async def acknowledge_dead_letter(
    context: InjectedContext, dead_letter_id: PathId, body: AcknowledgeOne
) -> Response:
    """Acknowledge one dead letter; 409 if it is already resolved."""
    count = await context.app.dead_letters.acknowledge([dead_letter_id], body.note)
    return await _resolution_response(context, dead_letter_id, count)


def _skip_count(ids: list[int] | None, count: int) -> int:
    return 0 if ids is None else len(set(ids)) - count


async def _resolution_response(context: InjectedContext, dead_letter_id: int, count: int) -> Response:
    letter = await context.app.dead_letters.get(dead_letter_id)
    if not count:
        raise Refusal(problem(409, f"dead letter {dead_letter_id} is already {letter.status}"))
    return letter_response(mask_record(letter, context.mask))
