"""What has been declared so far: every manifest once, and all that was said about each group."""

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


class Ledger:
    """Keeps declarations in the order in which they were written."""

    def __init__(self, codec_of: CodecOf | None = None) -> None:
        self._manifests: dict[str, Declaration] = {}
        self._groups: dict[str, GroupDeclaration] = {}
        self._implied_priorities: dict[str, int] = {}
        self._order = Dag()
        self._group_order = Dag()
        self._codecs: dict[Train[Any, Any], Codec[Any]] = {}
        self.codec_of = codec_of or self._own_codec_of

    def add(self, made: Sequence[tuple[Declaration, ScheduleOptions]]) -> None:
        """Keep declarations, all of them or, when an external id is taken or a circle closed, none."""
        new: dict[str, Declaration] = {}
        for manifest, _ in made:
            self._refuse_taken(manifest, new)
            new[manifest.external_id] = manifest
        self._connect(new)
        self._manifests |= new
        for manifest, options in made:
            self.say(manifest.group, options.group)
            if manifest.priority or options.priority is not None:
                self._implied_priorities[manifest.group] = manifest.priority

    def say(self, name: str, said: Group) -> None:
        """Note a word about a group."""
        known = self._groups.get(name) or GroupDeclaration(name=name)
        self._groups[name] = known.overridden_by(said)

    def checked(self) -> Timetable:
        """Everything so far. Nothing in it waits for itself: that was refused where it was declared."""
        self._refuse_wrong_renames()
        groups = tuple(self._with_implied_priority(group) for group in self._groups.values())
        return Timetable(manifests=parents_first(self._manifests.values()), groups=groups)

    def _connect(self, new: dict[str, Declaration]) -> None:
        """Note who waits for whom, unless that closes a circle. A parent may come after its children."""
        edges = [(each.depends_on, name) for name, each in new.items() if each.depends_on is not None]
        waiting = [(name, child) for name in new for child in self._order.children_of(name)]
        between = self._between_groups([*edges, *waiting], new)
        if self._order.closes_circle(edges) or self._group_order.closes_circle(between):
            check_graph((*self._manifests.values(), *new.values()))
        self._order.add(edges)
        self._group_order.add(between)

    def _between_groups(self, edges: list[Edge], new: dict[str, Declaration]) -> list[Edge]:
        known = (new.get(name) or self._manifests.get(name) for edge in edges for name in edge)
        return group_edges(edges, {each.external_id: each.group for each in known if each is not None})

    def _refuse_taken(self, manifest: Declaration, new: dict[str, Declaration]) -> None:
        external_id = manifest.external_id
        holder = self._manifests.get(external_id) or new.get(external_id)
        if holder is not None:
            raise DefinitionError(
                f"the external id {external_id!r} is declared twice: for train {holder.train!r} and for "
                f"train {manifest.train!r}; give one of them another id"
            )

    def _refuse_wrong_renames(self) -> None:
        """An old id belongs to nobody else: it is neither declared still, nor taken over twice."""
        taken: dict[str, str] = {}
        for external_id, manifest in self._manifests.items():
            for old in manifest.renamed_from:
                if old in self._manifests:
                    raise DefinitionError(
                        f"manifest {external_id!r} is renamed from {old!r}, which is still declared; "
                        f"take one of the two away"
                    )
                if taken.setdefault(old, external_id) != external_id:
                    raise DefinitionError(
                        f"manifests {taken[old]!r} and {external_id!r} are both renamed from {old!r}; "
                        f"only one can take over its history"
                    )

    def _with_implied_priority(self, group: GroupDeclaration) -> GroupDeclaration:
        """What was said about the group itself outweighs the priority that one of its manifests has."""
        if group.priority is not UNSET or group.name not in self._implied_priorities:
            return group
        return replace(group, priority=self._implied_priorities[group.name])

    def _own_codec_of(self, train: Train[Any, Any]) -> Codec[Any]:
        if train not in self._codecs:
            self._codecs[train] = input_codec(train)
        return self._codecs[train]
