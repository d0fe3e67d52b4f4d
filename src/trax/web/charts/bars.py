"""Stacked column charts over time."""

from __future__ import annotations

from dataclasses import dataclass
from math import log10
from typing import TYPE_CHECKING, Final

from trax.web.charts.svg import element, join_elements, title

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markupsafe import Markup

STEPS: Final = (1, 2, 4, 5, 10)
HEIGHT: Final = 100
COLUMN: Final = 10
GAP: Final = 2


@dataclass(frozen=True, slots=True)
class Column:
    """One period: its label, and the count of each kind."""

    label: str
    counts: tuple[int, ...]
    mark: str = ""
    """Axis label, where there is room; by default the label."""


def top_of(columns: Sequence[Column]) -> int:
    """The top of the scale: the next round number, at least four, so that its quarters are whole."""
    highest = max((sum(column.counts) for column in columns), default=0)
    if highest <= STEPS[2]:
        return STEPS[2]
    size = 10 ** int(log10(highest))
    return next(step * size for step in STEPS if step * size >= highest)


def bar_chart(columns: Sequence[Column], kinds: Sequence[str], *, label: str) -> Markup:
    """Draw the columns; `kinds` name the layers, lowest first. The page sets the size."""
    top = top_of(columns)
    width = max(1, len(columns)) * COLUMN
    lines = [
        element("line", class_="grid", x1=0, x2=width, y1=HEIGHT * quarter / 4, y2=HEIGHT * quarter / 4)
        for quarter in range(5)
    ]
    bars = [
        element("g", title(_column_title(column, kinds)), *_layers(position, column, kinds, top))
        for position, column in enumerate(columns)
    ]
    return element(
        "svg",
        join_elements(lines),
        join_elements(bars),
        class_="chart-bars",
        viewBox=f"0 0 {width} {HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )


def _layers(position: int, column: Column, kinds: Sequence[str], top: int) -> Iterator[Markup]:
    """The layers, after a full-height hover area that makes low columns easy to point at."""
    yield element("rect", class_="hover", x=position * COLUMN, y=0, width=COLUMN, height=HEIGHT)
    below = 0.0
    for count, kind in zip(column.counts, kinds, strict=True):
        if count:
            height = count * HEIGHT / top
            below += height
            x = position * COLUMN + GAP / 2
            yield element(
                "rect", class_=f"is-{kind}", x=x, y=HEIGHT - below, width=COLUMN - GAP, height=height
            )


def _column_title(column: Column, kinds: Sequence[str]) -> str:
    counts = [
        f"{count} {kind.replace('_', ' ')}" for count, kind in zip(column.counts, kinds, strict=True) if count
    ]
    return f"{column.label}: {', '.join(counts) or 'none'}"


def ticks(columns: Sequence[Column], at_most: int) -> list[str]:
    """Evenly spaced axis labels, at most this many."""
    count = len(columns)
    every = next((step for step in range(1, count + 1) if count % step == 0 and count / step <= at_most), 1)
    return [column.mark or column.label for column in columns[::every]]
