"""Charts as SVG markup, without scripts: columns, rings, bars, graphs. The style sheet has the colours."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import log10, pi
from typing import TYPE_CHECKING, Final

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


def element(name: str, *children: str, **attributes: object) -> Markup:
    """`element("rect", class_="bar", x=1)`: a trailing underscore is dropped, others become hyphens."""
    formatted = "".join(
        f' {_attribute(key)}="{_value(value)}"' for key, value in attributes.items() if value is not None
    )
    inside = join_elements(children)
    return Markup(f"<{name}{formatted}>{inside}</{name}>" if children else f"<{name}{formatted}/>")  # noqa: S704


def join_elements(children: Iterable[str]) -> Markup:
    return Markup("").join(children)


def title(text: str) -> Markup:
    """A tooltip, which screen readers announce too."""
    return element("title", text)


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _value(value: object) -> str:
    """Format a value; numbers are kept short, since a drawing has thousands of them."""
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return str(value) if isinstance(value, int) else escape(value)


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


NODE_WIDTH: Final = 176
NODE_HEIGHT: Final = 40
ACROSS: Final = 64
DOWN: Final = 14
MARGIN: Final = 8
SWEEPS: Final = 4
LETTERS: Final = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A linked node. `kind` sets its colour; `detail` is a second, smaller line."""

    key: str
    href: str
    kind: str = "plain"
    detail: str = ""


def layers_of(keys: Sequence[str], edges: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Assign nodes to layers, each to the right of its parents. Cycles are broken where they close."""
    parents: Mapping[str, list[str]] = defaultdict(list)
    for parent, child in edges:
        parents[child].append(parent)
    depth: dict[str, int] = {}
    for key in keys:
        _assign_depth(key, parents, depth)
    layers: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for key in keys:
        layers[depth[key]].append(key)
    return _reduce_crossings(layers, edges)


def graph(nodes: Sequence[Node], edges: Sequence[tuple[str, str]], *, label: str) -> Markup:
    known = {node.key for node in nodes}
    edges = [(parent, child) for parent, child in edges if {parent, child} <= known and parent != child]
    layers = layers_of([node.key for node in nodes], edges)
    tallest = max((len(layer) for layer in layers), default=0)
    width = 2 * MARGIN + len(layers) * (NODE_WIDTH + ACROSS) - ACROSS
    height = 2 * MARGIN + tallest * (NODE_HEIGHT + DOWN) - DOWN
    places = _places(layers, height)
    return element(
        "svg",
        *_edges([(places[parent], places[child]) for parent, child in edges]),
        *(_node(node, places[node.key]) for node in nodes),
        class_="chart-graph",
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        role="group",
        aria_label=label,
    )


def _assign_depth(key: str, parents: Mapping[str, list[str]], depth: dict[str, int]) -> None:
    """Compute the depth of a node without recursion: a chain may exceed Python's recursion limit."""
    waiting, entered = [key], set[str]()
    while waiting:
        current = waiting[-1]
        unvisited = [each for each in parents[current] if each not in depth and each not in entered]
        if current not in depth and current not in entered and unvisited:
            entered.add(current)
            waiting += unvisited
            continue
        waiting.pop()
        if current not in depth:
            depth[current] = max((depth[each] + 1 for each in parents[current] if each in depth), default=0)


def _reduce_crossings(layers: list[list[str]], edges: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Sort each layer by the mean position of neighbours, in several sweeps, to reduce crossing edges."""
    neighbours: Mapping[str, list[str]] = defaultdict(list)
    for parent, child in edges:
        neighbours[child].append(parent)
        neighbours[parent].append(child)
    row = {key: float(position) for layer in layers for position, key in enumerate(layer)}
    for sweep in range(SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            middles = {key: _mean([row[each] for each in neighbours[key]], row[key]) for key in layer}
            layer.sort(key=middles.__getitem__)
            row.update({key: float(position) for position, key in enumerate(layer)})
    return layers


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _places(layers: Sequence[Sequence[str]], height: int) -> dict[str, tuple[int, int]]:
    places: dict[str, tuple[int, int]] = {}
    for across, layer in enumerate(layers):
        tall = len(layer) * (NODE_HEIGHT + DOWN) - DOWN
        above = (height - tall) // 2
        for down, key in enumerate(layer):
            places[key] = (MARGIN + across * (NODE_WIDTH + ACROSS), above + down * (NODE_HEIGHT + DOWN))
    return places


def _edges(ends: Sequence[tuple[tuple[int, int], tuple[int, int]]]) -> list[Markup]:
    """Draw all edges as one path, and all arrow tips as another."""
    lines, tips = zip(*(_edge(start, end) for start, end in ends), strict=True) if ends else ((), ())
    return [element("path", class_="edge", d="".join(lines)), element("path", class_="tip", d="".join(tips))]


def _edge(start: tuple[int, int], end: tuple[int, int]) -> tuple[str, str]:
    x1, y1 = start[0] + NODE_WIDTH, start[1] + NODE_HEIGHT // 2
    x2, y2 = end[0], end[1] + NODE_HEIGHT // 2
    bend = max(ACROSS // 2, abs(x2 - x1) // 2)
    line = f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2 - 5} {y2}"
    return line, f"M{x2 - 6} {y2 - 4}L{x2} {y2}L{x2 - 6} {y2 + 4}Z"


def _node(node: Node, place: tuple[int, int]) -> Markup:
    x, y = place
    lines = [element("text", _truncate(node.key), x=x + 12, y=y + (17 if node.detail else 25))]
    if node.detail:
        lines.append(element("text", node.detail, class_="detail", x=x + 12, y=y + 32))
    return element(
        "a",
        title(f"{node.key}: {node.detail}" if node.detail else node.key),
        element("rect", class_="node", x=x, y=y, width=NODE_WIDTH, height=NODE_HEIGHT, rx=5),
        element("rect", class_="edge-mark", x=x, y=y + 8, width=3, height=NODE_HEIGHT - 16, rx=1.5),
        *lines,
        href=node.href,
        class_=f"graph-node is-{node.kind}",
    )


def _truncate(text: str) -> str:
    return text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…"
