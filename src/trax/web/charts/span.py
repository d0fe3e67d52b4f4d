"""Bars for table rows: a share of a whole, or consecutive spans of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trax.web.charts.svg import element, title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

WIDTH: Final = 1000
LEAST: Final = 2
"""Minimum width, so that a span without duration is visible."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the bar; start and end are fractions from 0 to 1."""

    kind: str
    start: float
    end: float
    label: str = ""


def share(fraction: float, kind: str, *, label: str) -> Markup:
    """One bar from the left."""
    return stretches([Stretch(kind, 0.0, fraction, label)], label=label)


def stretches(parts: Sequence[Stretch], *, label: str) -> Markup:
    rectangles = [
        element(
            "rect",
            title(part.label or label),
            class_=f"is-{part.kind}",
            x=min(WIDTH * part.start, WIDTH - LEAST),
            y=0,
            width=max(WIDTH * (part.end - part.start), LEAST),
            height=10,
        )
        for part in parts
    ]
    return element(
        "svg",
        *rectangles,
        class_="chart-span",
        viewBox=f"0 0 {WIDTH} 10",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )
