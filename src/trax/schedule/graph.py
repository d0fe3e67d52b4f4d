"""Who waits for whom: neither manifests nor groups may do so in a circle. No I/O: give it edges."""

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
"""How much of a circle is told."""


def check_graph(
    manifests: Iterable[Declaration],
    *,
    stored_parents: Mapping[str, str | None] | None = None,
    stored_groups: Mapping[str, str] | None = None,
) -> None:
    """Check these manifests, together with stored ones: their parents and groups by external id.

    A declared manifest takes the place of the stored one of its name.
    """
    manifests = tuple(manifests)
    parents = {**(stored_parents or {}), **{each.external_id: each.depends_on for each in manifests}}
    groups = {**(stored_groups or {}), **{each.external_id: each.group for each in manifests}}
    edges = [(parent, child) for child, parent in parents.items() if parent is not None]
    check_manifest_cycles(edges)
    check_group_cycles(group_edges(edges, groups))


def check_manifest_cycles(edges: Iterable[Edge]) -> None:
    """Refuse manifests that would wait for each other for ever."""
    edges = list(dict.fromkeys(edges))
    stuck = _never_free(edges)
    if stuck:
        raise DefinitionError(
            f"manifests cannot depend on each other in a circle: {_circle(edges, stuck)}; "
            f"take one of these dependencies away"
        )


def check_group_cycles(edges: Iterable[Edge]) -> None:
    """Refuse groups that wait for each other; edges inside one group are no concern of this check."""
    edges = [(parent, child) for parent, child in dict.fromkeys(edges) if parent != child]
    stuck = _never_free(edges)
    if stuck:
        raise DefinitionError(
            f"groups must form a DAG, but these are in a circle of dependencies or behind one: "
            f"{', '.join(sorted(stuck))} ({_circle(edges, stuck)}); put manifests that depend on each other "
            f"into one group, or take a dependency away"
        )


class Dag:
    """Edges that close no circle, added a few at a time: each time only what they lead to is walked."""

    def __init__(self) -> None:
        self._children: dict[str, dict[str, None]] = {}
        self._has_parent: set[str] = set()

    def children_of(self, name: str) -> Iterable[str]:
        return self._children.get(name, ())

    def add(self, edges: Iterable[Edge]) -> None:
        """Add edges of which `closes_circle` was asked."""
        for parent, child in edges:
            self._children.setdefault(parent, {})[child] = None
            self._has_parent.add(child)

    def closes_circle(self, edges: Iterable[Edge]) -> bool:
        """Whether these would close one, together with what is here. From a name to itself is no circle."""
        edges = [edge for edge in dict.fromkeys(edges) if edge[0] != edge[1]]
        new = Dag()
        new.add(edges)
        return any(
            (parent in self._has_parent or parent in new._has_parent) and self._leads(new, child, parent)
            for parent, child in edges
        )

    def _leads(self, more: Dag, start: str, end: str) -> bool:
        seen, ahead = {start}, [start]
        while ahead:
            name = ahead.pop()
            if name == end:
                return True
            fresh = {*self.children_of(name), *more.children_of(name)} - seen
            seen |= fresh
            ahead.extend(fresh)
        return False


def group_edges(edges: Iterable[Edge], groups: Mapping[str, str]) -> list[Edge]:
    """The edges between groups that follow from those between manifests, as far as their groups are known."""
    return [
        (groups[parent], groups[child]) for parent, child in edges if parent in groups and child in groups
    ]


def parents_first(manifests: Iterable[Declaration]) -> tuple[Declaration, ...]:
    """The same manifests in the same order, except that a parent declared later moves before its child."""
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


def _never_free(edges: list[Edge]) -> set[str]:
    """Everyone in a circle or behind one: who is left when all that wait for nobody have gone (Kahn)."""
    waits = Counter(child for _, child in edges)
    children: dict[str, list[str]] = {}
    for parent, child in edges:
        children.setdefault(parent, []).append(child)

    free = [parent for parent in children if parent not in waits]
    while free:
        for child in children.get(free.pop(), ()):
            waits[child] -= 1
            if not waits[child]:
                del waits[child]
                free.append(child)

    return set(waits)


def _circle(edges: list[Edge], stuck: set[str]) -> str:
    """One circle as a path that begins with its first name. Walking up from a stuck one must come round."""
    above = {child: parent for parent, child in sorted(edges, reverse=True) if parent in stuck}
    at, walked = min(stuck), dict[str, None]()
    while at not in walked:
        walked[at] = None
        at = above[at]
    names = list(walked)
    circle = names[names.index(at) :][::-1]
    start = circle.index(min(circle))
    path = [*circle[start:], *circle[:start], circle[start]]
    if len(path) > LONGEST_PATH:
        path[LONGEST_PATH - 2 : -1] = [f"… ({len(circle)} in all)"]
    return " -> ".join(path)
