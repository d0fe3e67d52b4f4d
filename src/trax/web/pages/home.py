"""Home page (key figures and charts), and the page of workers."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from trax.inspect.status import status
from trax.records.stats import Span
from trax.records.status import problems
from trax.records.worker import declaration_conflicts
from trax.web.charts import Column, bar_chart, ring, share, ticks, top_of
from trax.web.context import context_of
from trax.web.pages.formats import share as percent
from trax.web.pages.formats import span
from trax.web.pages.listing import from_start, query_choice, query_number
from trax.web.pages.rendering import LIVE, Preferences, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax.records.stats import Blocks, FailingTrain, Overview, States, Throughput, TrainDuration


router = APIRouter()
END_STATES: Final = ("completed", "failed", "cancelled")
SERIES: Final = ("first", "second", "third")
OTHERS: Final = "rest"
LABELS: Final = 7
SHOWN_TRAINS: Final = 8
STARTED_AT: Final = time.monotonic()


@dataclass(frozen=True, slots=True)
class Plot:
    """A column chart with its scale, top down, and its time labels."""

    drawing: Markup
    scale: tuple[str, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BarRow:
    """A table row with a bar."""

    stats: Any
    drawing: Markup


@router.get("/")
async def home(request: Request) -> Response:
    preferences = Preferences.of(request)
    by = Span(query_choice(request, "by", Span) or Span.MINUTE)
    overview, errors = await _overview(request, preferences, by)
    return show(
        request,
        "home.html",
        here="home",
        by=by,
        home=overview.home,
        server=this_server(),
        problems=errors,
        **_draw_blocks(overview, by),
    )


async def _overview(request: Request, preferences: Preferences, by: Span) -> tuple[Overview, list[str]]:
    """Load the numbers, shared between live refreshes; other requests always query the database."""
    context = context_of(request)
    stats = partial(
        context.app.stats.overview,
        by,
        limit=SHOWN_TRAINS,
        without=preferences.hidden,
        admin=preferences.admin,
    )

    async def read() -> tuple[Overview, list[str]]:
        return await stats(), problems(await status(context.app.context.store, context.app.context.live))

    if LIVE in request.headers and context.fanout.is_watching:
        return await context.shared.get(
            context.fanout.last_event_id, (by, preferences.hidden, preferences.admin), read
        )
    return await read()


def _draw_blocks(found: Overview, by: Span) -> dict[str, Any]:
    """The charts and tables that are enabled in the preferences."""
    values: dict[str, Any] = {}
    if found.throughput is not None:
        values["throughput"] = throughput_plot(found.throughput, by)
    if found.states is not None:
        values["states"] = counts = states_of(found.states)
        values["ring"] = ring(counts, label="Executions by state")
    if found.durations is not None:
        values["durations"] = duration_rows(found.durations)
    if found.failing is not None:
        values["failing"] = failure_rows(found.failing)
    if found.blocks is not None:
        values["blocks"] = blocks_plot(found.blocks)
        values["busiest"] = legend_of(found.blocks)
    return values


def throughput_plot(found: Throughput, by: Span) -> Plot:
    columns = [
        Column(f"{point.at:%H:%M}", (point.completed, point.failed, point.cancelled))
        for point in found.points
    ]
    return plot(columns, END_STATES, f"Ended executions by {by}")


def blocks_plot(found: Blocks) -> Plot:
    series = [one.counts for one in found.series]
    rows = [*series, *[(0,) * len(found.starts)] * (len(SERIES) - len(series)), found.other]
    columns = [
        Column(f"{start:%a %d %b %H:%M}", counts, f"{start:%a %d}")
        for start, counts in zip(found.starts, zip(*rows, strict=True), strict=True)
    ]
    return plot(columns, (*SERIES, OTHERS), "Ended executions by train, in blocks of six hours")


def legend_of(found: Blocks) -> list[tuple[str, str]]:
    """Colours and train names."""
    named = [(kind, one.train) for kind, one in zip(SERIES, found.series, strict=False)]
    return [*named, (OTHERS, "others")] if any(found.other) else named


def plot(columns: Sequence[Column], kinds: Sequence[str], label: str) -> Plot:
    top = top_of(columns)
    marks = [top * quarter / 4 for quarter in (4, 3, 2, 1, 0)]
    return Plot(
        bar_chart(columns, kinds, label=label),
        tuple(f"{mark:,.0f}" if mark == int(mark) else "" for mark in marks),
        tuple(ticks(columns, LABELS)),
    )


def states_of(found: States) -> list[tuple[str, int]]:
    return [
        ("completed", found.completed),
        ("failed", found.failed),
        ("cancelled", found.cancelled),
        ("in_progress", found.in_progress.number),
        ("pending", found.pending.number),
    ]


def duration_rows(found: Sequence[TrainDuration]) -> list[BarRow]:
    longest = max((one.average for one in found), default=None) or timedelta(seconds=1)
    return [BarRow(one, share(one.average / longest, "plain", label=span(one.average))) for one in found]


def failure_rows(found: Sequence[FailingTrain]) -> list[BarRow]:
    return [BarRow(one, share(one.failure_rate, "failed", label=percent(one.failure_rate))) for one in found]


def this_server() -> list[tuple[str, str]]:
    """Facts about the process that serves this page."""
    return [
        ("Process", str(os.getpid())),
        ("Uptime", span(time.monotonic() - STARTED_AT)),
        ("CPU time", span(time.process_time())),
        *_memory(),
    ]


def _memory() -> list[tuple[str, str]]:
    """Peak memory; not available on Windows."""
    if sys.platform == "win32":
        return []
    from resource import RUSAGE_SELF, getrusage

    unit = 1024 * 1024 if sys.platform == "darwin" else 1024
    return [("Peak memory", f"{getrusage(RUSAGE_SELF).ru_maxrss / unit:.0f} MB")]


SHOWN_WORKERS: Final = 25
SHOWN_JOBS: Final = 5


@router.get("/workers")
async def workers(request: Request) -> Response:
    rows = await context_of(request).app.workers.list(
        jobs=SHOWN_JOBS, after=query_number(request, "after"), limit=SHOWN_WORKERS + 1
    )
    listing = from_start(request, rows, limit=SHOWN_WORKERS, key=lambda view: view.worker.id)
    context = context_of(request).app.context
    servers = (await status(context.store, context.live)).servers
    wrong = declaration_conflicts(servers)
    return show(request, "workers.html", here="workers", listing=listing, disagreements=wrong)
