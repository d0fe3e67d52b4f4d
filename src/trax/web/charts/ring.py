"""Ring charts: parts of a whole."""

from __future__ import annotations

from math import pi
from typing import TYPE_CHECKING, Final

from trax.web.charts.svg import element, title

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markupsafe import Markup

RADIUS: Final = 42
AROUND: Final = 2 * pi * RADIUS


def ring(parts: Sequence[tuple[str, int]], *, label: str) -> Markup:
    """Draw a ring of kinds and counts, with the total in the middle."""
    whole = sum(count for _, count in parts)
    return element(
        "svg",
        element("circle", class_="ring-empty", cx=50, cy=50, r=RADIUS),
        *_arcs(parts, whole),
        element("text", f"{whole:,}", class_="ring-whole", x=50, y=50, dy="0.35em", text_anchor="middle"),
        class_="chart-ring",
        viewBox="0 0 100 100",
        role="img",
        aria_label=label,
    )


def _arcs(parts: Sequence[tuple[str, int]], whole: int) -> Iterator[Markup]:
    before = 0.0
    for kind, count in parts:
        if count:
            length = AROUND * count / whole
            yield element(
                "circle",
                title(f"{count:,} {kind.replace('_', ' ')}"),
                class_=f"ring-part is-{kind}",
                cx=50,
                cy=50,
                r=RADIUS,
                stroke_dasharray=f"{length:.2f} {AROUND - length:.2f}",
                stroke_dashoffset=AROUND / 4 - before,
            )
            before += length
