"""Bars as SVG: readable on a light and on a dark page, with their figures as text."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH: Final = 720
LEFT: Final = 130
RIGHT: Final = 110
TOP: Final = 64
BAR: Final = 14
GAP: Final = 10
STYLE: Final = """
.card { fill: #ffffff; stroke: #d0d7de } text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 } .small { font-size: 12px; fill: #59636e }
.ours { fill: #0969da } .theirs { fill: #8c959f } .second { opacity: .55 } .range { stroke: #1f2328 }
@media (prefers-color-scheme: dark) {
.card { fill: #0d1117; stroke: #3d444d } text { fill: #e6edf3 } .small { fill: #9198a1 }
.ours { fill: #4493f8 } .theirs { fill: #6e7681 } .range { stroke: #e6edf3 } }
"""


class Value(NamedTuple):
    """A median between the lowest and the highest round."""

    middle: float
    low: float
    high: float


class Line(NamedTuple):
    """One name with a bar for each series; a series that it does not have is None."""

    name: str
    values: Sequence[Value | None]
    is_ours: bool = False


def draw_bars(title: str, unit: str, series: Sequence[str], lines: Sequence[Line]) -> str:
    """A chart with the bars of each name below each other, on one scale that begins at 0."""
    highest = max(value.high for line in lines for value in line.values if value is not None)
    scale = (WIDTH - LEFT - RIGHT) / highest
    drawn: list[str] = []
    y = TOP
    for line in lines:
        drawn.append(f'<text x="{LEFT - 8}" y="{y + BAR - 3}" text-anchor="end">{escape(line.name)}</text>')
        for number, value in enumerate(line.values):
            if value is not None:
                drawn += _draw_bar(value, y, scale, is_ours=line.is_ours, is_second=number > 0)
            y += BAR + 2
        y += GAP
    description = "; ".join(f"{line.name} {_describe(line, series)}" for line in lines)
    legend = f"{unit}; " + ", below it ".join(series) if len(series) > 1 else f"{unit}, {series[0]}"
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + GAP}" width="{WIDTH}" \
height="{y + GAP}" role="img" aria-labelledby="title text">
<title id="title">{escape(title)}</title>
<desc id="text">{escape(f"{title}, {unit}: {description}")}</desc>
<style>{STYLE}</style>
<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{y + GAP - 1}" rx="6"/>
<text class="title" x="16" y="26">{escape(title)}</text>
<text class="small" x="16" y="46">{escape(legend)}</text>
{chr(10).join(drawn)}
</svg>
"""


def _draw_bar(value: Value, y: int, scale: float, *, is_ours: bool, is_second: bool) -> list[str]:
    middle, low, high = (round(LEFT + each * scale, 1) for each in value)
    width = max(1, middle - LEFT)
    kind = f"{'ours' if is_ours else 'theirs'}{' second' if is_second else ''}"
    half, base = y + BAR / 2, y + BAR - 3
    return [
        f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2"/>',
        f'<path class="range" d="M{low} {half}H{high}"/>',
        f'<text class="small" x="{max(middle, high) + 6:.1f}" y="{base}">{_format(value.middle)}</text>',
    ]


def _describe(line: Line, series: Sequence[str]) -> str:
    pairs = zip(series, line.values, strict=True)
    return ", ".join(f"{_format(value.middle)} ({name})" for name, value in pairs if value is not None)


def _format(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.1f}"  # noqa: PLR2004
