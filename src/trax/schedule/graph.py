"""Dependency graphs of manifests and groups: refuse cycles, order parents before children. No I/O."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from trax.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trax.schedule.declaration import Declaration

Edge: TypeAlias = tuple[str, str]
"""A parent and its child."""

LONGEST_PATH = 12
"""How many names of a cycle an error message shows."""


def check_graph(
    manifests: Iterable[Declaration],
    *,
    stored_parents: Mapping[str, str | None] | None = None,
    stored_groups: Mapping[str, str] | None = None,
) -> None:
    """Refuse cycles among these manifests and stored ones, given as parents and groups by external id.

    A declared manifest replaces the stored one with the same external id.
    """
    manifests = tuple(manifests)
    parents = {**(stored_parents or {}), **{each.external_id: each.depends_on for each in manifests}}
    groups = {**(stored_groups or {}), **{each.external_id: each.group for each in manifests}}
    edges = [(parent, child) for child, parent in parents.items() if parent is not None]
    check_manifest_cycles(edges)
    check_group_cycles(group_edges(edges, groups))


def check_manifest_cycles(edges: Iterable[Edge]) -> None:
    """Refuse manifests that depend on each other in a cycle."""
    edges = list(dict.fromkeys(edges))
    blocked = _find_blocked(edges)
    if blocked:
        raise DefinitionError(
            f"manifests depend on each other in a cycle: {_format_cycle(edges, blocked)}; "
            f"remove one of these dependencies"
        )


def check_group_cycles(edges: Iterable[Edge]) -> None:
    """Refuse groups that depend on each other in a cycle; dependencies inside one group are ignored."""
    edges = [(parent, child) for parent, child in dict.fromkeys(edges) if parent != child]
    blocked = _find_blocked(edges)
    if blocked:
        raise DefinitionError(
            f"groups must form a DAG, but these are in a dependency cycle or depend on one: "
            f"{', '.join(sorted(blocked))} ({_format_cycle(edges, blocked)}); put manifests that depend on "
            f"each other into one group, or remove a dependency"
        )


class Dag:
    """A directed graph without cycles, built step by step; a check visits only what the new edges reach."""

    def __init__(self) -> None:
        self._children: dict[str, dict[str, None]] = {}
        self._has_parent: set[str] = set()

    def children_of(self, name: str) -> Iterable[str]:
        return self._children.get(name, ())

    def add(self, edges: Iterable[Edge]) -> None:
        """Add edges. Check them for cycles first."""
        for parent, child in edges:
            self._children.setdefault(parent, {})[child] = None
            self._has_parent.add(child)

    def creates_cycle(self, edges: Iterable[Edge]) -> bool:
        """Whether adding these edges would create a cycle. An edge from a name to itself does not count."""
        edges = [edge for edge in dict.fromkeys(edges) if edge[0] != edge[1]]
        new = Dag()
        new.add(edges)
        return any(
            (parent in self._has_parent or parent in new._has_parent) and self._has_path(new, child, parent)
            for parent, child in edges
        )

    def _has_path(self, more: Dag, start: str, end: str) -> bool:
        seen, ahead = {start}, [start]
        while ahead:
            name = ahead.pop()
            if name == end:
                return True
            new = {*self.children_of(name), *more.children_of(name)} - seen
            seen |= new
            ahead.extend(new)
        return False


def group_edges(edges: Iterable[Edge], groups: Mapping[str, str]) -> list[Edge]:
    """The edges between groups that follow from edges between manifests whose groups are known."""
    return [
        (groups[parent], groups[child]) for parent, child in edges if parent in groups and child in groups
    ]


def parents_first(manifests: Iterable[Declaration]) -> tuple[Declaration, ...]:
    """The manifests in the given order, with parents moved before their children."""
    waiting = {each.external_id: each for each in manifests}
    ordered: list[Declaration] = []
    for external_id in list(waiting):
        lineage: list[Declaration] = []
        ancestor: str | None = external_id
        while ancestor is not None and ancestor in waiting:
            lineage.append(waiting.pop(ancestor))
            ancestor = lineage[-1].depends_on
        ordered.extend(reversed(lineage))
    return tuple(ordered)


def _find_blocked(edges: list[Edge]) -> set[str]:
    """The names in a cycle or behind one: what is left after a topological sort (Kahn)."""
    open_parents = Counter(child for _, child in edges)
    children: dict[str, list[str]] = {}
    for parent, child in edges:
        children.setdefault(parent, []).append(child)

    free = [parent for parent in children if parent not in open_parents]
    while free:
        for child in children.get(free.pop(), ()):
            open_parents[child] -= 1
            if not open_parents[child]:
                del open_parents[child]
                free.append(child)

    return set(open_parents)


def _format_cycle(edges: list[Edge], stuck: set[str]) -> str:
    """One cycle as a path, starting with its first name. Following parents from a blocked name finds it."""
    above = {child: parent for parent, child in sorted(edges, reverse=True) if parent in stuck}
    at, walked = min(stuck), dict[str, None]()
    while at not in walked:
        walked[at] = None
        at = above[at]
    names = list(walked)
    cycle = names[names.index(at) :][::-1]
    start = cycle.index(min(cycle))
    path = [*cycle[start:], *cycle[:start], cycle[start]]
    if len(path) > LONGEST_PATH:
        path[LONGEST_PATH - 2 : -1] = [f"… ({len(cycle)} in all)"]
    return " -> ".join(path)
