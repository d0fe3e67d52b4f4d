"""Execution pages: the list, one execution with its timeline, and the log lines of all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from trax.errors import TraxError, count_noun
from trax.records.metadata import ADMINISTRATIVE_PREFIX
from trax.records.nouns import EXECUTIONS, LOGS
from trax.records.states import ACTIVE
from trax.web.api.trains import rerun
from trax.web.charts import Stretch, stretches
from trax.web.context import context_of, request_form
from trax.web.pages.formats import plain, span
from trax.web.pages.listing import FilterField, load_listing, query_number, read_filters
from trax.web.pages.rendering import Message, Preferences, current_time, row_ids, run_action, show, show_list

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax.records import LogLine, Metadata
    from trax.web.context import Form


router = APIRouter()

WITHIN: Final = {
    "15 minutes": timedelta(minutes=15),
    "1 hour": timedelta(hours=1),
    "1 day": timedelta(days=1),
    "7 days": timedelta(days=7),
}

SHOWN_LINES: Final = 50

SHOWN_CHARACTERS: Final = 6_000
"""Maximum total length of the log lines shown."""

SHOWN_CHILDREN: Final = 20


@router.get("/executions")
async def executions(request: Request) -> Response:
    now = current_time(request)
    spans = {words: {"since": now - span} for words, span in WITHIN.items()}
    form = read_filters(request, EXECUTIONS, FilterField("within", "Created within", spans, "all time"))
    form = replace(form, filters={**form.filters, "admin": Preferences.of(request).admin})
    return await show_list(request, "executions.html", EXECUTIONS, form, here="executions")


@router.post("/executions")
async def change_executions(request: Request) -> Response:
    ids = row_ids(request_form(request))
    question = f"{count_noun(len(ids), 'execution')} will be cancelled, if not already ended."
    return await run_action(request, lambda: _cancel(request, ids), question=question)


@router.get("/executions/{metadata_id}")
async def execution(request: Request, metadata_id: int) -> Response:
    app = context_of(request).app
    run = await app.executions.get(metadata_id)
    lines = await app.executions.logs(
        metadata_id, after=query_number(request, "lines"), limit=SHOWN_LINES + 1, brief=True
    )
    line_count = count_fitting_lines(lines)
    settings = app.context.settings
    return show(
        request,
        "execution.html",
        here="executions",
        run=run,
        timeline=timeline_of(run, current_time(request)),
        children=await app.executions.page(parent_id=run.id, limit=SHOWN_CHILDREN, admin=True, brief=True),
        lines=lines[:line_count],
        more_lines=lines[line_count - 1].id if len(lines) > line_count else None,
        can_rerun=_can_rerun(run, request),
        save_inputs=settings.save_inputs,
        save_outputs=settings.save_outputs,
    )


@router.post("/executions/{metadata_id}")
async def change_execution(request: Request, metadata_id: int) -> Response:
    form = request_form(request)
    question = "The execution will be cancelled." if form.get("action") == "cancel" else None
    return await run_action(request, lambda: _apply_action(request, form, metadata_id), question=question)


async def _apply_action(request: Request, form: Form, metadata_id: int) -> Message:
    match form.get("action"):
        case "cancel":
            return await _cancel(request, [metadata_id])
        case "rerun":
            entry = await rerun(context_of(request).app, metadata_id)
            return Message(f"Queued again as entry {entry.id}.", path=f"/queue/{entry.id}")
        case other:
            raise TraxError(f"unknown action {other!r}; expected cancel or rerun")


async def _cancel(request: Request, ids: Sequence[int]) -> Message:
    stopped = await context_of(request).app.executions.cancel(ids)
    skipped = len(set(ids)) - len(stopped)
    tail = f"; {skipped} skipped: already ended" if skipped else ""
    text = f"Cancellation requested for {count_noun(len(stopped), 'execution')}{tail}"
    return Message(text, is_good=bool(stopped))


def count_fitting_lines(lines: Sequence[LogLine]) -> int:
    """How many lines fit on the page; at least one if there are any."""
    lengths = accumulate(len(line.message) + len(line.exception or "") for line in lines[:SHOWN_LINES])
    return max(sum(length <= SHOWN_CHARACTERS for length in lengths), min(1, len(lines)))


def _can_rerun(run: Metadata, request: Request) -> bool:
    """Whether the input was saved and the train exists, as far as trains are known in this process."""
    app = context_of(request).app
    saved_input: Any = run.input
    is_cut = isinstance(saved_input, dict) and "_truncated" in saved_input
    is_ours = not run.train.startswith(ADMINISTRATIVE_PREFIX) and (
        run.train in app.trains or not len(app.trains)
    )
    return app.context.settings.save_inputs and not is_cut and is_ours


@router.get("/logs")
async def logs(request: Request) -> Response:
    form = read_filters(request, LOGS)
    listing = await load_listing(request, LOGS, form.filters, counts=False)
    return await show_list(request, "logs.html", LOGS, form, here="logs", listing=listing)


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """A step of the timeline: its time, and the duration since the previous step."""

    name: str
    at: datetime
    after: timedelta | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class JunctionBar:
    """A junction, with a bar that shows its share of the run."""

    name: str
    duration: timedelta
    drawing: Markup


@dataclass(frozen=True, slots=True)
class Timeline:
    """The timeline of an execution."""

    drawing: Markup
    steps: tuple[TimelineStep, ...]
    junctions: tuple[JunctionBar, ...]


def timeline_of(run: Metadata, now: datetime) -> Timeline:
    end = max(run.ended_at or now, run.started_at or run.created_at)
    return Timeline(_draw_run(run, end), tuple(_steps(run, now)), tuple(_junctions(run, end)))


def _steps(run: Metadata, now: datetime) -> list[TimelineStep]:
    steps = [TimelineStep("dispatched", run.created_at)]
    if run.started_at is not None:
        steps.append(
            TimelineStep("started", run.started_at, run.started_at - run.created_at, "waited for a worker")
        )
    if run.ended_at is not None:
        since = run.started_at or run.created_at
        steps.append(TimelineStep(plain(run.state), run.ended_at, run.ended_at - since, "later"))
    elif run.state in ACTIVE:
        since = run.started_at or run.created_at
        note = "so far" if run.started_at else "waiting for a worker"
        steps.append(TimelineStep("now", now, max(now - since, timedelta()), note))
    return steps


def _draw_run(run: Metadata, end: datetime) -> Markup:
    """Draw waiting and running time to scale. A run without duration fills the bar."""
    whole = (end - run.created_at).total_seconds()
    start = run.started_at or end
    waited = (start - run.created_at).total_seconds() / whole if whole > 0 else 0.0
    waited = min(max(waited, 0.0), 1.0)
    ended = "run" if run.ended_at is None else str(run.state)
    parts = [Stretch("wait", 0.0, waited, f"waited {span(start - run.created_at)}")] if waited else []
    if run.started_at is not None:
        parts.append(Stretch(ended, waited, 1.0, f"ran {span(end - start)}"))
    return stretches(parts, label=f"waited {span(start - run.created_at)}, ran {span(end - start)}")


def _junctions(run: Metadata, end: datetime) -> list[JunctionBar]:
    if run.started_at is None or not run.junctions:
        return []
    whole = max((end - run.started_at).total_seconds(), 1e-6)
    drawn: list[JunctionBar] = []
    for timing in run.junctions:
        begin = (timing.started_at - run.started_at).total_seconds() / whole
        stop = min(begin + timing.duration.total_seconds() / whole, 1.0)
        kind = "failed" if timing.name == run.failure_junction else "run"
        stretch = Stretch(kind, min(max(begin, 0.0), 1.0), stop, f"{timing.name}: {span(timing.duration)}")
        drawn.append(JunctionBar(timing.name, timing.duration, stretches([stretch], label=stretch.label)))
    return drawn
