"""A Gantt chart of one simulated day as SVG: a row for each manifest, a bar for each run.

It needs no script and no other file, and is readable on a light and on a dark page.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, date, datetime, time, timedelta
from html import escape
from typing import TYPE_CHECKING, Final

from trax.clock import format_duration
from trax.escapes import visible_text
from trax.records.states import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from trax.inspect.forecast_figures import Figures
    from trax.inspect.simulate import Forecast
    from trax.store.runs.run_lists import TimedRun

WIDTH: Final = 1200
LEFT: Final = 220
RIGHT: Final = 24
TOP: Final = 92
ROW: Final = 20
BAR: Final = 12
LETTERS: Final = 30
LEAST: Final = 1.5
"""The least width of a bar, so that a short run is visible."""
DAY: Final = timedelta(days=1)
GAPS: Final = tuple(timedelta(minutes=minutes) for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180))
MOST_TICKS: Final = 12
STYLE: Final = """
.card { fill: #ffffff; stroke: #d0d7de } text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 } .small { fill: #59636e } .grid { stroke: #d8dee4 }
.stripe { fill: #f6f8fa } .waits { fill: #d4a72c } .completed { fill: #0969da } .failed { fill: #cf222e }
.cancelled { fill: #8250df } .in_progress { fill: #1a7f37 }
@media (prefers-color-scheme: dark) {
.card { fill: #0d1117; stroke: #3d444d } text { fill: #e6edf3 } .small { fill: #9198a1 }
.grid { stroke: #30363d } .stripe { fill: #151b23 } .waits { fill: #bb8009 } .completed { fill: #4493f8 }
.failed { fill: #f85149 } .cancelled { fill: #ab7df8 } .in_progress { fill: #3fb950 } }
"""
LEGEND: Final = (
    ("waits", "waits"),
    ("completed", "completed"),
    ("failed", "failed"),
    ("cancelled", "cancelled"),
    ("in_progress", "still runs"),
)


def busiest_day(figures: Figures) -> date | None:
    """The day on which all runs together take longest; the first of several."""
    return max(figures.days, key=lambda day: day.busy).day if figures.days else None


def draw_day(forecast: Forecast, day: date) -> str:
    """Draw the runs that were due or active on this day (UTC), from the first moment to the last."""
    since = datetime.combine(day, time(), UTC)
    shown = [run for run in forecast.runs if _is_on(run, since, since + DAY)]
    rows: defaultdict[str, list[TimedRun]] = defaultdict(list)
    for run in shown:
        rows[run.manifest].append(run)
    names = _in_order(forecast, rows)
    axis = _Axis(shown, since, forecast.end)
    height = TOP + ROW * max(1, len(names)) + 16
    title = f"Simulated runs on {day:%A, %d %B %Y} (UTC)"
    inside = [*axis.draw(height), *_draw_rows(names, rows, axis)] if names else [_text(16, TOP, "No runs.")]
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" \
height="{height}" role="img" aria-labelledby="title text">
<title id="title">{escape(title)}</title>
<desc id="text">{escape(_describe(title, names, rows))}</desc>
<style>{STYLE}</style>
<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>
<text class="title" x="16" y="28">{escape(title)}</text>
{_draw_legend()}
{chr(10).join(inside)}
</svg>
"""


def _is_on(run: TimedRun, since: datetime, until: datetime) -> bool:
    return (
        run.started_at is not None and run.due_at < until and (run.ended_at is None or run.ended_at > since)
    )


def _in_order(forecast: Forecast, rows: Mapping[str, Sequence[TimedRun]]) -> list[str]:
    """By the first start; dependents follow their root."""

    def key(name: str) -> tuple[datetime, str, datetime]:
        root = name
        while root in forecast.parents:
            root = forecast.parents[root]
        first = rows[root] if root in rows else rows[name]
        return first[0].due_at, root, rows[name][0].due_at if name != root else first[0].due_at - DAY

    return sorted(rows, key=key)


class _Axis:
    """The time axis: from the first due time to the last end of the day, with a round step between lines."""

    def __init__(self, runs: Sequence[TimedRun], since: datetime, end: datetime) -> None:
        last = max((run.ended_at or end for run in runs), default=since + DAY)
        first = min((run.due_at for run in runs), default=since)
        self._since, until = max(since, first), min(since + DAY, last)
        length = max(until - self._since, timedelta(minutes=1))
        self._step = next((gap for gap in GAPS if length / gap <= MOST_TICKS), GAPS[-1])
        self._since -= (self._since - since) % self._step
        self._until = self._since + max(length, self._step)
        self._until += -(self._until - since) % self._step
        self._scale = (WIDTH - LEFT - RIGHT) / (self._until - self._since).total_seconds()

    def x(self, moment: datetime) -> float:
        seconds = (min(max(moment, self._since), self._until) - self._since).total_seconds()
        return LEFT + seconds * self._scale

    @property
    def until(self) -> datetime:
        return self._until

    def draw(self, height: int) -> Iterator[str]:
        moment = self._since
        while moment <= self._until:
            x = self.x(moment)
            yield f'<path class="grid" d="M{x:.1f} {TOP - 6}V{height - 12}"/>'
            yield f'<text class="small" x="{x:.1f}" y="{TOP - 12}" text-anchor="middle">{moment:%H:%M}</text>'
            moment += self._step


def _draw_legend() -> str:
    x, drawn = 16, list[str]()
    for kind, label in LEGEND:
        drawn.append(f'<rect class="{kind}" x="{x}" y="42" width="12" height="12" rx="2"/>')
        drawn.append(_text(x + 18, 52, label, "small"))
        x += 40 + 7 * len(label)
    return "\n".join(drawn)


def _draw_rows(names: Sequence[str], rows: Mapping[str, Sequence[TimedRun]], axis: _Axis) -> Iterator[str]:
    for number, name in enumerate(names):
        y = TOP + ROW * number
        if number % 2 == 0:
            yield f'<rect class="stripe" x="8" y="{y}" width="{WIDTH - 16}" height="{ROW}"/>'
        short = name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…"
        yield f"<g>{_text(16, y + 14, short)}<title>{_plain(name)}</title></g>"
        yield from (_draw_run(run, axis, y + (ROW - BAR) // 2) for run in rows[name])


def _draw_run(run: TimedRun, axis: _Axis, y: int) -> str:
    start, end = run.started_at or run.due_at, run.ended_at or axis.until
    x1, x2, x3 = axis.x(run.due_at), axis.x(start), axis.x(end)
    waits = f'<rect class="waits" x="{x1:.1f}" y="{y + 4}" width="{x2 - x1:.1f}" height="{BAR - 8}"/>'
    took = f", took {format_duration(run.ended_at - start, units=2)}" if run.ended_at else ""
    tooltip = (
        f"{run.manifest}: due {run.due_at:%H:%M:%S}, started {start:%H:%M:%S}{took}, "
        f"{run.state.value.replace('_', ' ')}"
    )
    return (
        f'<g class="run"><title>{_plain(tooltip)}</title>{waits if x2 - x1 >= 1 else ""}'
        f'<rect class="{run.state.value}" x="{x2:.1f}" y="{y}" width="{max(LEAST, x3 - x2):.1f}" '
        f'height="{BAR}" rx="1.5"/></g>'
    )


def _describe(title: str, names: Sequence[str], rows: Mapping[str, Iterable[TimedRun]]) -> str:
    lines: list[str] = []
    for name in names:
        runs = list(rows[name])
        ends = [run.ended_at for run in runs if run.ended_at]
        end = f", the last ends at {max(ends):%H:%M}" if ends else ""
        failed = sum(run.state is State.FAILED for run in runs)
        lines.append(f"{name}: {len(runs)} runs{end}{f', {failed} failed' if failed else ''}")
    return visible_text(f"{title}. {'; '.join(lines) or 'No runs'}.")


def _text(x: int, y: int, text: str, kind: str = "name") -> str:
    return f'<text class="{kind}" x="{x}" y="{y}">{_plain(text)}</text>'


def _plain(text: str) -> str:
    return escape(visible_text(text))
