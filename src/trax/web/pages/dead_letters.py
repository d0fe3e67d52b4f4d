"""Dead letter pages: list, requeue and acknowledge jobs that were given up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from trax.errors import NotFound, TraxError, count_noun
from trax.records.listing import RecordPage
from trax.records.nouns import DEAD_LETTERS
from trax.records.states import DeadLetterStatus, State
from trax.web.context import context_of, request_form
from trax.web.pages.formats import whole_number
from trax.web.pages.listing import load_listing, read_filters
from trax.web.pages.rendering import Message, row_ids, run_action, show, show_list

if TYPE_CHECKING:
    from trax.records import DeadLetter, Metadata
    from trax.web.context import Form

router = APIRouter()
SHOWN_KINDS: Final = 12
SHOWN_LETTERS: Final = 30
SHOWN_RUNS: Final = 20
WAITING: Final = DeadLetterStatus.AWAITING_INTERVENTION


@router.get("/dead-letters")
async def dead_letters(request: Request) -> Response:
    """List those awaiting intervention; `status=` (empty) lists all."""
    form = read_filters(request, DEAD_LETTERS, defaults={"status": WAITING})
    groups = await context_of(request).app.dead_letters.groups(limit=SHOWN_KINDS + 1, brief=True)
    return await show_list(
        request,
        "dead_letters.html",
        DEAD_LETTERS,
        form,
        here="dead_letters",
        listing=await load_listing(request, DEAD_LETTERS, form.filters, limit=SHOWN_LETTERS),
        groups=groups[:SHOWN_KINDS],
        more_groups=len(groups) > SHOWN_KINDS,
    )


@router.post("/dead-letters")
async def change_dead_letters(request: Request) -> Response:
    form = request_form(request)
    return await run_action(
        request, lambda: _apply_action(request, form, row_ids(form)), question=_question(form)
    )


@router.get("/dead-letters/{dead_letter_id}")
async def dead_letter(request: Request, dead_letter_id: int) -> Response:
    letter = await context_of(request).app.dead_letters.get(dead_letter_id)
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
    form = request_form(request)
    return await run_action(request, lambda: _apply_action(request, form, [dead_letter_id]))


def _question(form: Form) -> str | None:
    """Confirm actions on many letters; requeueing a single one as a trial needs no confirmation."""
    is_trial = form.get("limit") == "1"
    if form.get("all"):
        return "This applies to every dead letter awaiting intervention."
    if form.get("fingerprint") and form.get("action") == "requeue" and not is_trial:
        return "All dead letters of this kind will be requeued."
    if row_ids(form) and form.get("action") == "requeue":
        letters = count_noun(len(row_ids(form)), "dead letter")
        return f"{letters} will be requeued, if still awaiting intervention."
    return None


async def _apply_action(request: Request, form: Form, ids: list[int]) -> Message:
    letters, note = context_of(request).app.dead_letters, form.get("note") or None
    fingerprint = form.get("fingerprint") or None
    match form.get("action"), form.get("all"):
        case "requeue", "yes":
            return _requeue_message(await letters.requeue_all(note))
        case "requeue", _ if fingerprint:
            limit = whole_number("limit", form.get("limit"))
            return _requeue_message(await letters.requeue(fingerprint=fingerprint, limit=limit, note=note))
        case "requeue", _:
            return _requeue_message(await letters.requeue(ids, note))
        case "acknowledge", "yes":
            return _acknowledge_message(await letters.acknowledge_all(_require_note(note)))
        case "acknowledge", _ if fingerprint:
            return _acknowledge_message(
                await letters.acknowledge(fingerprint=fingerprint, note=_require_note(note))
            )
        case "acknowledge", _:
            return _acknowledge_message(await letters.acknowledge(ids, _require_note(note)))
        case other, _:
            raise TraxError(f"unknown action {other!r}; expected requeue or acknowledge")


def _require_note(note: str | None) -> str:
    if note is None:
        raise TraxError("Acknowledging needs a note: enter how it was resolved.")
    return note


def _requeue_message(count: int) -> Message:
    if not count:
        return Message("Nothing was requeued: already resolved.", is_good=False)
    return Message(f"{count_noun(count, 'dead letter')} requeued", path="/queue")


def _acknowledge_message(count: int) -> Message:
    if not count:
        return Message("Nothing was acknowledged: already resolved.", is_good=False)
    return Message(f"{count_noun(count, 'dead letter')} acknowledged")


async def _last_failure(request: Request, letter: DeadLetter) -> Metadata | None:
    if letter.last_metadata_id is None:
        return None
    try:
        return await context_of(request).app.executions.get(letter.last_metadata_id)
    except NotFound:
        return None


async def _failures(request: Request, letter: DeadLetter, failure: Metadata | None) -> RecordPage[Metadata]:
    """The failed executions of its manifest; without a manifest, only the last one."""
    if letter.manifest is None:
        return RecordPage(items=(failure,) if failure else ())
    executions = context_of(request).app.executions
    return await executions.page(
        manifest=letter.manifest, state=State.FAILED, limit=SHOWN_RUNS, admin=True, brief=True
    )
