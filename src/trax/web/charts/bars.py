"""Columns over time, each in layers: how many of each kind, minute by minute."""

from __future__ import annotations

from dataclasses import dataclass
from math import log10
from typing import TYPE_CHECKING, Final

from trax.web.charts.svg import element, title, together

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markupsafe import Markup

STEPS: Final = (1, 2, 4, 5, 10)
HEIGHT: Final = 100
COLUMN: Final = 10
GAP: Final = 2


@dataclass(frozen=True, slots=True)
class Column:
    """One stretch of time: what to say about it, and how many there were of each kind."""

    label: str
    counts: tuple[int, ...]
    mark: str = ""
    """What stands below it, where there is room; by default the label."""


def top_of(columns: Sequence[Column]) -> int:
    """Where the scale ends: the next round number, at least four, so that its quarters are whole."""
    highest = max((sum(column.counts) for column in columns), default=0)
    if highest <= STEPS[2]:
        return STEPS[2]
    size = 10 ** int(log10(highest))
    return next(step * size for step in STEPS if step * size >= highest)


def stacked(columns: Sequence[Column], kinds: Sequence[str], *, label: str) -> Markup:
    """The columns, as wide and as high as the page makes them; `kinds` name the layers, lowest first."""
    top = top_of(columns)
    width = max(1, len(columns)) * COLUMN
    lines = [
        element("line", class_="grid", x1=0, x2=width, y1=HEIGHT * quarter / 4, y2=HEIGHT * quarter / 4)
        for quarter in range(5)
    ]
    drawn = [
        element("g", title(_said(column, kinds)), *_layers(position, column, kinds, top))
        for position, column in enumerate(columns)
    ]
    return element(
        "svg",
        together(lines),
        together(drawn),
        class_="chart-bars",
        viewBox=f"0 0 {width} {HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )


def _layers(position: int, column: Column, kinds: Sequence[str], top: int) -> Iterator[Markup]:
    """An empty one over the whole height first: the pointer need not find a low column."""
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


def _said(column: Column, kinds: Sequence[str]) -> str:
    counts = [
        f"{count} {kind.replace('_', ' ')}" for count, kind in zip(column.counts, kinds, strict=True) if count
    ]
    return f"{column.label}: {', '.join(counts) or 'nothing'}"


def ticks(columns: Sequence[Column], at_most: int) -> list[str]:
    """What stands below the columns: as many as fit, each as far from the next."""
    count = len(columns)
    every = next((step for step in range(1, count + 1) if count % step == 0 and count / step <= at_most), 1)
    return [column.mark or column.label for column in columns[::every]]
