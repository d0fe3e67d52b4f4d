"""Figures as a reader wants them: the median and how far the rounds lay apart, beside the goal."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def spread(figures: Sequence[float], form: str = ",.0f") -> str:
    """The median, and the smallest and the largest if there are several."""
    if len(figures) == 1:
        return f"{figures[0]:{form}}"
    return f"{median(figures):{form}} ({min(figures):{form}} to {max(figures):{form}})"


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Each round by itself: what slowed one down slowed the other down, too."""
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]


def percentile(figures: Sequence[float], share: float) -> float:
    return sorted(figures)[min(len(figures) - 1, int(len(figures) * share))]


def row(name: str, *cells: str, widths: Sequence[int]) -> None:
    print(f"  {name:<34}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=False)))


def goal(name: str, figure: str, wanted: str, *, met: bool) -> None:
    print(f"  {'met   ' if met else 'MISSED'}  {name}: {figure}, goal {wanted}")
