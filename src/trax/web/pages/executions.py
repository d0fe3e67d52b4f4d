"""Executions: the record of every attempt, and one of them in all detail."""

from __future__ import annotations

from datetime import timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from trax.errors import TraxError
from trax.records.metadata import ADMINISTRATIVE
from trax.records.states import State
from trax.web.api.asking import asked_again
from trax.web.pages.acts import act, posted
from trax.web.pages.course import course_of
from trax.web.pages.listing import newest_of, number, one_of, word
from trax.web.pages.messages import Message
from trax.web.pages.rendering import moment_now, show
from trax.web.pages.taste import Taste
from trax.web.pages.words import many
from trax.web.room import room_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax.host.executions import RunKeywords
    from trax.records import LogLine, Metadata
    from trax.web.pages.acts import Form

router = APIRouter()
WITHIN: Final = {
    "15 minutes": timedelta(minutes=15),
    "1 hour": timedelta(hours=1),
    "1 day": timedelta(days=1),
    "7 days": timedelta(days=7),
}
SHOWN_LINES: Final = 50
SHOWN_CHARACTERS: Final = 6_000
"""Of all lines that are shown, together."""
SHOWN_CHILDREN: Final = 20


@router.get("/executions")
async def executions(request: Request) -> Response:
    within = one_of(request, "within", WITHIN)
    query: RunKeywords = {
        "state": one_of(request, "state", State),
        "train": word(request, "train"),
        "manifest": word(request, "manifest"),
        "group": word(request, "group"),
        "external_id": word(request, "external_id"),
    }
    since = moment_now(request) - WITHIN[within] if within else None
    wanted: RunKeywords = {**query, "since": since, "admin": Taste.of(request).admin}
    return show(
        request,
        "executions.html",
        here="executions",
        listing=await newest_of(request, room_of(request).app.executions, **wanted),
        query={**query, "within": within},
        is_filtered=bool(within or any(query.values())),
        states=list(State),
        spans=list(WITHIN),
    )


@router.post("/executions")
async def change_executions(request: Request) -> Response:
    form = await posted(request)
    question = f"{many(len(form.ids), 'run')} will be asked to stop, if not over."
    return await act(request, form, lambda: _stopped(request, form.ids), question=question)


@router.get("/executions/{metadata_id}")
async def execution(request: Request, metadata_id: int) -> Response:
    app = room_of(request).app
    run = await app.executions.get(metadata_id)
    lines = await app.executions.logs(
        metadata_id, after=number(request, "lines"), limit=SHOWN_LINES + 1, brief=True
    )
    shown = fitting(lines)
    settings = app.parts.settings
    return show(
        request,
        "execution.html",
        here="executions",
        run=run,
        course=course_of(run, moment_now(request)),
        children=await app.executions.page(parent_id=run.id, limit=SHOWN_CHILDREN, admin=True, brief=True),
        lines=lines[:shown],
        more_lines=lines[shown - 1].id if len(lines) > shown else None,
        can_rerun=_can_rerun(run, request),
        save_inputs=settings.save_inputs,
        save_outputs=settings.save_outputs,
    )


@router.post("/executions/{metadata_id}")
async def change_execution(request: Request, metadata_id: int) -> Response:
    form = await posted(request)
    question = "The run will be asked to stop." if form.get("action") == "cancel" else None
    return await act(request, form, lambda: _done(request, form, metadata_id), question=question)


async def _done(request: Request, form: Form, metadata_id: int) -> Message:
    match form.get("action"):
        case "cancel":
            return await _stopped(request, [metadata_id])
        case "rerun":
            entry = await asked_again(room_of(request).app, metadata_id)
            return Message(f"Queued again as entry {entry.id}.", path=f"/queue/{entry.id}")
        case other:
            raise TraxError(f"an execution knows no action {other!r}")


async def _stopped(request: Request, ids: Sequence[int]) -> Message:
    stopped = await room_of(request).app.executions.cancel(ids)
    skipped = len(set(ids)) - len(stopped)
    tail = f"; {skipped} skipped, over already" if skipped else ""
    return Message(f"{many(len(stopped), 'run')} asked to stop{tail}", is_good=bool(stopped))


def fitting(lines: Sequence[LogLine]) -> int:
    """How many of these lines a page has room for, one at least if there is one."""
    lengths = accumulate(len(line.message) + len(line.exception or "") for line in lines[:SHOWN_LINES])
    return max(sum(length <= SHOWN_CHARACTERS for length in lengths), min(1, len(lines)))


def _can_rerun(run: Metadata, request: Request) -> bool:
    """Whether its input is there, and its train, as far as trains are known here."""
    app = room_of(request).app
    given: Any = run.input
    is_cut = isinstance(given, dict) and "_truncated" in given
    is_ours = not run.train.startswith(ADMINISTRATIVE) and (run.train in app.trains or not len(app.trains))
    return app.parts.settings.save_inputs and not is_cut and is_ours
