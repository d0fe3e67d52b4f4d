"""Timeline of one execution: waiting, running, end, and its junctions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from markupsafe import Markup

from trax.records.states import ACTIVE
from trax.web.charts.span import Stretch, stretches
from trax.web.pages.words import plain, span

if TYPE_CHECKING:
    from trax.records import Metadata


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """A step of the timeline: its time, and the duration since the previous step."""

    name: str
    at: datetime
    after: timedelta | None = None
    words: str = ""


@dataclass(frozen=True, slots=True)
class JunctionBar:
    """A junction, with a bar that shows its share of the run."""

    name: str
    seconds: float
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
        words = "so far" if run.started_at else "waiting for a worker"
        steps.append(TimelineStep("now", now, max(now - since, timedelta()), words))
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
        stop = min(begin + timing.seconds / whole, 1.0)
        kind = "failed" if timing.name == run.failure_junction else "run"
        stretch = Stretch(kind, min(max(begin, 0.0), 1.0), stop, f"{timing.name}: {span(timing.seconds)}")
        drawn.append(JunctionBar(timing.name, timing.seconds, stretches([stretch], label=stretch.label)))
    return drawn
