"""Collect declarations: every manifest once, and the merged options of each group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from trax.errors import DefinitionError
from trax.schedule.declaration import UNSET, GroupDeclaration, Timetable
from trax.schedule.declare import Encoder
from trax.schedule.graph import Dag, check_graph, group_edges, parents_first
from trax.train import Train, input_codec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax.schedule.declaration import Declaration, Group
    from trax.schedule.graph import Edge
    from trax.schedule.options import ScheduleOptions
    from trax.train import Codec

CodecOf: TypeAlias = Callable[[Train[Any, Any]], Encoder]


class DeclarationRegistry:
    """The declarations so far, in the order in which they were written."""

    def __init__(self, codec_of: CodecOf | None = None) -> None:
        self._manifests: dict[str, Declaration] = {}
        self._groups: dict[str, GroupDeclaration] = {}
        self._implied_priorities: dict[str, int] = {}
        self._manifest_graph = Dag()
        self._group_graph = Dag()
        self._codecs: dict[Train[Any, Any], Codec[Any]] = {}
        self.codec_of = codec_of or self._default_codec

    def add(self, declarations: Sequence[tuple[Declaration, ScheduleOptions]]) -> None:
        """Add declarations: all, or none if an external id is taken or a dependency cycle would result."""
        new: dict[str, Declaration] = {}
        for manifest, _ in declarations:
            self._refuse_duplicate(manifest, new)
            new[manifest.external_id] = manifest
        self._connect(new)
        self._manifests |= new
        for manifest, options in declarations:
            self.merge_group(manifest.group, options.group)
            if manifest.priority or options.priority is not None:
                self._implied_priorities[manifest.group] = manifest.priority

    def merge_group(self, name: str, group: Group) -> None:
        """Merge options of a group into those declared before."""
        known = self._groups.get(name) or GroupDeclaration(name=name)
        self._groups[name] = known.merge(group)

    def timetable(self) -> Timetable:
        """All declarations so far. Cycles were refused when they were added."""
        self._refuse_wrong_renames()
        groups = tuple(self._with_implied_priority(group) for group in self._groups.values())
        return Timetable(manifests=parents_first(self._manifests.values()), groups=groups)

    def _connect(self, new: dict[str, Declaration]) -> None:
        """Add the dependencies of new manifests; refuse cycles. A parent may follow its children."""
        edges = [(each.depends_on, name) for name, each in new.items() if each.depends_on is not None]
        waiting = [(name, child) for name in new for child in self._manifest_graph.children_of(name)]
        between = self._edges_between_groups([*edges, *waiting], new)
        if self._manifest_graph.creates_cycle(edges) or self._group_graph.creates_cycle(between):
            check_graph((*self._manifests.values(), *new.values()))
        self._manifest_graph.add(edges)
        self._group_graph.add(between)

    def _edges_between_groups(self, edges: list[Edge], new: dict[str, Declaration]) -> list[Edge]:
        known = (new.get(name) or self._manifests.get(name) for edge in edges for name in edge)
        return group_edges(edges, {each.external_id: each.group for each in known if each is not None})

    def _refuse_duplicate(self, manifest: Declaration, new: dict[str, Declaration]) -> None:
        external_id = manifest.external_id
        holder = self._manifests.get(external_id) or new.get(external_id)
        if holder is not None:
            raise DefinitionError(
                f"external id {external_id!r} is declared twice: for train {holder.train!r} and for "
                f"train {manifest.train!r}; give one of them another id"
            )

    def _refuse_wrong_renames(self) -> None:
        """Refuse a former external id that is still declared, or that two manifests claim."""
        taken: dict[str, str] = {}
        for external_id, manifest in self._manifests.items():
            for old in manifest.renamed_from:
                if old in self._manifests:
                    raise DefinitionError(
                        f"manifest {external_id!r} is renamed from {old!r}, which is still declared; "
                        f"remove one of the two"
                    )
                if taken.setdefault(old, external_id) != external_id:
                    raise DefinitionError(
                        f"manifests {taken[old]!r} and {external_id!r} are both renamed from {old!r}; "
                        f"only one can take over its history"
                    )

    def _with_implied_priority(self, group: GroupDeclaration) -> GroupDeclaration:
        """A group without a declared priority gets that of its last manifest with one."""
        if group.priority is not UNSET or group.name not in self._implied_priorities:
            return group
        return replace(group, priority=self._implied_priorities[group.name])

    def _default_codec(self, train: Train[Any, Any]) -> Codec[Any]:
        if train not in self._codecs:
            self._codecs[train] = input_codec(train)
        return self._codecs[train]
