"""What has been declared so far: every manifest once, and all that was said about each group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from trax.errors import DefinitionError
from trax.schedule.declaration import UNSET, GroupDeclaration, Timetable
from trax.schedule.declare import Encoder
from trax.schedule.graph import check_graph, parents_first
from trax.train import Codec, Train

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax.schedule.declaration import Declaration, Group
    from trax.schedule.options import ScheduleOptions

CodecOf: TypeAlias = Callable[[Train[Any, Any]], Encoder]


class Ledger:
    """Keeps declarations in the order in which they were written."""

    def __init__(self, codec_of: CodecOf | None = None) -> None:
        self._manifests: dict[str, Declaration] = {}
        self._groups: dict[str, GroupDeclaration] = {}
        self._implied_priorities: dict[str, int] = {}
        self._codecs: dict[Train[Any, Any], Codec[Any]] = {}
        self.codec_of = codec_of or self._own_codec_of

    def add(self, made: Sequence[tuple[Declaration, ScheduleOptions]]) -> None:
        """Keep declarations, all of them or, when an external id is taken, none."""
        new: dict[str, Declaration] = {}
        for manifest, _ in made:
            self._refuse_taken(manifest, new)
            new[manifest.external_id] = manifest
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
        """Everything so far, once it is known that nothing waits for itself."""
        manifests = tuple(self._manifests.values())
        check_graph(manifests)
        groups = tuple(self._with_implied_priority(group) for group in self._groups.values())
        return Timetable(manifests=parents_first(manifests), groups=groups)

    def _refuse_taken(self, manifest: Declaration, new: dict[str, Declaration]) -> None:
        external_id = manifest.external_id
        holder = self._manifests.get(external_id) or new.get(external_id)
        if holder is not None:
            raise DefinitionError(
                f"the external id {external_id!r} is declared twice: for train {holder.train!r} and for "
                f"train {manifest.train!r}; give one of them another id"
            )

    def _with_implied_priority(self, group: GroupDeclaration) -> GroupDeclaration:
        """What was said about the group itself outweighs the priority that one of its manifests has."""
        if group.priority is not UNSET or group.name not in self._implied_priorities:
            return group
        return replace(group, priority=self._implied_priorities[group.name])

    def _own_codec_of(self, train: Train[Any, Any]) -> Codec[Any]:
        if train not in self._codecs:
            self._codecs[train] = Codec(train.input_type, owner=f"train {train.name!r}")
        return self._codecs[train]
