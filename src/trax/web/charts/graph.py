"""Dependency graphs: nodes in layers from left to right."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trax.web.charts.svg import element, title

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup

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
