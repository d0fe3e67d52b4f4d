"""Dead letters: what gave up and waits for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from trax.errors import NotFound, TraxError
from trax.records.page import Page
from trax.records.states import DeadLetterStatus, State
from trax.web.pages.acts import act, posted
from trax.web.pages.listing import by_id, number, one_of, word
from trax.web.pages.messages import Message
from trax.web.pages.rendering import show
from trax.web.pages.spelled import whole_number
from trax.web.pages.words import many
from trax.web.room import room_of

if TYPE_CHECKING:
    from trax.records import DeadLetter, Metadata
    from trax.web.pages.acts import Form

router = APIRouter()
SHOWN_KINDS: Final = 12
SHOWN_LETTERS: Final = 30
SHOWN_RUNS: Final = 20
WAITING: Final = DeadLetterStatus.AWAITING_INTERVENTION


@router.get("/dead-letters")
async def dead_letters(request: Request) -> Response:
    """Those that wait, unless the address asks for others; `status=` asks for all."""
    letters = room_of(request).app.dead_letters
    status = one_of(request, "status", DeadLetterStatus) if "status" in request.query_params else WAITING
    query = {
        "status": status,
        "manifest": word(request, "manifest"),
        "fingerprint": word(request, "fingerprint"),
    }
    found = await letters.list(**query, before=number(request, "before"), limit=SHOWN_LETTERS + 1, brief=True)
    groups = await letters.groups(limit=SHOWN_KINDS + 1, brief=True)
    return show(
        request,
        "dead_letters.html",
        here="dead_letters",
        groups=groups[:SHOWN_KINDS],
        more_groups=len(groups) > SHOWN_KINDS,
        listing=by_id(request, found, limit=SHOWN_LETTERS),
        query=query,
        is_filtered=bool(query["manifest"] or query["fingerprint"] or status != WAITING),
        statuses=list(DeadLetterStatus),
        is_waiting=status == WAITING,
    )


@router.post("/dead-letters")
async def change_dead_letters(request: Request) -> Response:
    form = await posted(request)
    return await act(request, form, lambda: _done(request, form, form.ids), question=_question(form))


@router.get("/dead-letters/{dead_letter_id}")
async def dead_letter(request: Request, dead_letter_id: int) -> Response:
    letter = await room_of(request).app.dead_letters.get(dead_letter_id)
    failure = await _last_failure(request, letter)
    return show(
        request,
        "dead_letter.html",
        here="dead_letters",
        letter=letter,
        failure=failure,
        runs=await _failures(request, letter, failure),
    )


@router.post("/dead-letters/{dead_letter_id}")
async def change_dead_letter(request: Request, dead_letter_id: int) -> Response:
    form = await posted(request)
    return await act(request, form, lambda: _done(request, form, [dead_letter_id]))


def _question(form: Form) -> str | None:
    """Asked before many are touched; one as a trial, or with a note of its own, needs no question."""
    is_trial = form.get("limit") == "1"
    if form.get("all"):
        return "This is done to every dead letter that waits."
    if form.get("fingerprint") and form.get("action") == "requeue" and not is_trial:
        return "All letters of this kind will be queued again."
    if form.ids and form.get("action") == "requeue":
        return f"{many(len(form.ids), 'letter')} will be queued again, if still waiting."
    return None


async def _done(request: Request, form: Form, ids: list[int]) -> Message:
    letters, note = room_of(request).app.dead_letters, form.get("note") or None
    fingerprint = form.get("fingerprint") or None
    match form.get("action"), form.get("all"):
        case "requeue", "yes":
            return _requeued(await letters.requeue_all(note))
        case "requeue", _ if fingerprint:
            limit = whole_number("limit", form.get("limit"))
            return _requeued(await letters.requeue(fingerprint=fingerprint, limit=limit, note=note))
        case "requeue", _:
            return _requeued(await letters.requeue(ids, note))
        case "acknowledge", "yes":
            return _acknowledged(await letters.acknowledge_all(_needed(note)))
        case "acknowledge", _ if fingerprint:
            return _acknowledged(await letters.acknowledge(fingerprint=fingerprint, note=_needed(note)))
        case "acknowledge", _:
            return _acknowledged(await letters.acknowledge(ids, _needed(note)))
        case other, _:
            raise TraxError(f"a dead letter knows no action {other!r}")


def _needed(note: str | None) -> str:
    if note is None:
        raise TraxError("Say in the note how it was dealt with.")
    return note


def _requeued(count: int) -> Message:
    if not count:
        return Message("Nothing was queued: somebody else has resolved it meanwhile.", is_good=False)
    return Message(f"{many(count, 'letter')} queued again", path="/queue")


def _acknowledged(count: int) -> Message:
    if not count:
        return Message("Nothing was acknowledged: somebody else has resolved it meanwhile.", is_good=False)
    return Message(f"{many(count, 'letter')} acknowledged")


async def _last_failure(request: Request, letter: DeadLetter) -> Metadata | None:
    if letter.last_metadata_id is None:
        return None
    try:
        return await room_of(request).app.executions.get(letter.last_metadata_id)
    except NotFound:
        return None


async def _failures(request: Request, letter: DeadLetter, failure: Metadata | None) -> Page[Metadata]:
    """The failed runs of its manifest; of a job without one, only the last is known."""
    if letter.manifest is None:
        return Page(items=(failure,) if failure else ())
    executions = room_of(request).app.executions
    return await executions.page(
        manifest=letter.manifest, state=State.FAILED, limit=SHOWN_RUNS, admin=True, brief=True
    )
