"""Home: how it goes, at a glance."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from trax.host.status import status
from trax.records.status import problems
from trax.records.tally import Span
from trax.web.charts.bars import Column, stacked, ticks, top_of
from trax.web.charts.ring import ring
from trax.web.charts.span import share
from trax.web.pages.listing import one_of
from trax.web.pages.rendering import LIVE, show
from trax.web.pages.taste import Taste
from trax.web.pages.words import share as percent
from trax.web.pages.words import span
from trax.web.room import room_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax.records.stats import Blocks, FailingTrain, Overview, States, Throughput, TrainDuration

router = APIRouter()
ENDINGS: Final = ("completed", "failed", "cancelled")
SERIES: Final = ("first", "second", "third")
OTHERS: Final = "rest"
LABELS: Final = 7
SHOWN_TRAINS: Final = 8
STARTED: Final = time.monotonic()


@dataclass(frozen=True, slots=True)
class Plot:
    """Columns with their scale, from the top down, and the times below."""

    drawing: Markup
    scale: tuple[str, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A row with a bar."""

    of: Any
    drawing: Markup


@router.get("/")
async def home(request: Request) -> Response:
    taste = Taste.of(request)
    by = Span(one_of(request, "by", Span) or Span.MINUTE)
    found, wrong = await _overview(request, taste, by)
    return show(
        request,
        "home.html",
        here="home",
        by=by,
        home=found.home,
        server=this_server(),
        problems=wrong,
        **_blocks(found, by),
    )


async def _overview(request: Request, taste: Taste, by: Span) -> tuple[Overview, list[str]]:
    """Asked once for all who watch; for somebody who has just come, or just done something, anew."""
    room = room_of(request)
    stats = partial(room.app.stats.overview, by, limit=SHOWN_TRAINS, without=taste.hidden, admin=taste.admin)

    async def ask() -> tuple[Overview, list[str]]:
        return await stats(), problems(await status(room.app.parts))

    if LIVE in request.headers and room.fanout.is_watching:
        return await room.shared.answer(room.fanout.mark, (by, taste.hidden, taste.admin), ask)
    return await ask()


def _blocks(found: Overview, by: Span) -> dict[str, Any]:
    """What the viewer wants to see, drawn."""
    values: dict[str, Any] = {}
    if found.throughput is not None:
        values["throughput"] = throughput_plot(found.throughput, by)
    if found.states is not None:
        values["states"] = counted = states_of(found.states)
        values["ring"] = ring(counted, label="Executions by state")
    if found.durations is not None:
        values["durations"] = drawn_durations(found.durations)
    if found.failing is not None:
        values["failing"] = drawn_failures(found.failing)
    if found.blocks is not None:
        values["blocks"] = blocks_plot(found.blocks)
        values["busiest"] = legend_of(found.blocks)
    return values


def throughput_plot(found: Throughput, by: Span) -> Plot:
    columns = [
        Column(f"{point.at:%H:%M}", (point.completed, point.failed, point.cancelled))
        for point in found.points
    ]
    return plot(columns, ENDINGS, f"Executions that ended, by {by}")


def blocks_plot(found: Blocks) -> Plot:
    series = [one.counts for one in found.series]
    rows = [*series, *[(0,) * len(found.starts)] * (len(SERIES) - len(series)), found.other]
    columns = [
        Column(f"{start:%a %d %b %H:%M}", counts, f"{start:%a %d}")
        for start, counts in zip(found.starts, zip(*rows, strict=True), strict=True)
    ]
    return plot(columns, (*SERIES, OTHERS), "Executions that ended, by train, in blocks of six hours")


def legend_of(found: Blocks) -> list[tuple[str, str]]:
    """Which colour is which train."""
    named = [(kind, one.train) for kind, one in zip(SERIES, found.series, strict=False)]
    return [*named, (OTHERS, "others")] if any(found.other) else named


def plot(columns: Sequence[Column], kinds: Sequence[str], label: str) -> Plot:
    top = top_of(columns)
    marks = [top * quarter / 4 for quarter in (4, 3, 2, 1, 0)]
    return Plot(
        stacked(columns, kinds, label=label),
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


def drawn_durations(found: Sequence[TrainDuration]) -> list[Drawn]:
    longest = max((one.average_seconds for one in found), default=0.0) or 1.0
    return [
        Drawn(one, share(one.average_seconds / longest, "plain", label=span(one.average_seconds)))
        for one in found
    ]


def drawn_failures(found: Sequence[FailingTrain]) -> list[Drawn]:
    return [Drawn(one, share(one.failure_rate, "failed", label=percent(one.failure_rate))) for one in found]


def this_server() -> list[tuple[str, str]]:
    """How the process that shows this page is."""
    return [
        ("Process", str(os.getpid())),
        ("Up for", span(time.monotonic() - STARTED)),
        ("Processor time", span(time.process_time())),
        *_memory(),
    ]


def _memory() -> list[tuple[str, str]]:
    """The most it ever had; on Windows nobody is asked."""
    if sys.platform == "win32":
        return []
    from resource import RUSAGE_SELF, getrusage

    unit = 1024 * 1024 if sys.platform == "darwin" else 1024
    return [("Memory at most", f"{getrusage(RUSAGE_SELF).ru_maxrss / unit:.0f} MB")]
