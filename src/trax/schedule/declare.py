"""Build validated declarations: one manifest, or a batch; the registry refuses duplicates and cycles."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar, cast

from trax.errors import DefinitionError, InvalidArgument, InvalidInput, format_value
from trax.records.schedule import Cron, Interval, Schedule
from trax.records.states import ScheduleType
from trax.schedule.declaration import (
    UNSET,
    AfterManifest,
    Declaration,
    GroupDeclaration,
    Item,
    Once,
    ScheduleKeywords,
    Timetable,
    options_of,
    schedule_type_of,
)
from trax.schedule.every import variance_seconds
from trax.schedule.graph import Dag, check_graph, group_edges, parents_first
from trax.train import Train, input_codec
from trax.train.annotations import definition_place
from trax.train.options import check_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax.schedule.declaration import Group, Occasion, ScheduleOptions
    from trax.schedule.graph import Edge
    from trax.train import Codec, Retry


class Encoder(Protocol):
    """Encodes an input as JSON text; raises InvalidInput for an invalid one."""

    def encode(self, value: Any) -> str: ...


def build_declaration(
    train: Train[Any, Any],
    external_id: str,
    value: Any,
    occasion: Occasion,
    options: ScheduleOptions,
    *,
    codec: Encoder,
    group: str | None = None,
    batch: str | None = None,
) -> Declaration:
    """Build a declaration. Raises DefinitionError or InvalidInput.

    Its group is that of its options, else of its train, else `group`, else one named like the manifest.
    """
    check_name(external_id, "an external id")
    _check_fit(external_id, occasion, options)
    return Declaration(
        external_id=external_id,
        train=train.name,
        input=_encode_input(external_id, train, value, codec),
        schedule_type=ScheduleType.DORMANT_DEPENDENT if options.dormant else schedule_type_of(occasion),
        schedule=_schedule(occasion, options),
        delay=occasion.delay if isinstance(occasion, Once) else None,
        depends_on=occasion.parent if isinstance(occasion, AfterManifest) else None,
        group=options.group.name or train.options.group or group or external_id,
        batch=batch,
        priority=train.options.priority if options.priority is None else options.priority,
        enabled=options.enabled,
        max_attempts=_max_attempts(train, options),
        retry=_retry(train, options),
        timeout=options.timeout or train.options.timeout,
        misfire_policy=options.on_misfire[0],
        misfire_limit=options.on_misfire[1],
        misfire_threshold=options.misfire_threshold,
        exclusions=options.exclude,
        start=options.start,
        max_instances=options.max_instances,
        renamed_from=options.renamed_from,
    )


def _require_train(place: str, train: Any) -> Train[Any, Any]:
    if not isinstance(train, Train):
        raise DefinitionError(
            f"{place} needs a train (got {format_value(train)}); use @app.train or app.train(name, route)"
        )
    return cast("Train[Any, Any]", train)


def _check_fit(external_id: str, occasion: Occasion, options: ScheduleOptions) -> None:
    """Refuse options that would have no effect on this kind of manifest."""
    place = f"manifest {external_id!r}"
    if isinstance(occasion, AfterManifest):
        check_name(occasion.parent, f"{place}: what it depends on")
        if occasion.parent == external_id:
            raise DefinitionError(f"{place} depends on itself; name another manifest")
    elif options.dormant:
        raise DefinitionError(f"{place} cannot be dormant: only a manifest that depends on another one can")
    if not isinstance(occasion, Interval | Cron):
        if options.variance:
            raise DefinitionError(
                f"{place} has no every(…) or cron(…) schedule; the option variance applies only to those"
            )
        if options.start is not None:
            raise DefinitionError(
                f"{place} has no every(…) or cron(…) schedule; the option start applies only to those"
            )


def _encode_input(external_id: str, train: Train[Any, Any], value: Any, codec: Encoder) -> str:
    try:
        return codec.encode(value)
    except InvalidInput as error:
        subject = f"manifest {external_id!r}: train {train.name!r}: invalid input"
        raise InvalidInput(subject, error.errors) from None


def _schedule(occasion: Occasion, options: ScheduleOptions) -> Schedule | None:
    """The schedule; its own variance overrides the option."""
    if not isinstance(occasion, Interval | Cron):
        return None
    if options.variance is None or occasion.variance_seconds is not None:
        return occasion
    return replace(occasion, variance_seconds=variance_seconds(options.variance))


def _max_attempts(train: Train[Any, Any], options: ScheduleOptions) -> int | None:
    """The manifest's options override the train's, and `max_attempts` overrides `retry`."""
    for source in (options, train.options):
        if source.max_attempts is not None:
            return source.max_attempts
        if source.retry is not None:
            return source.retry.max_attempts
    return None


def _retry(train: Train[Any, Any], options: ScheduleOptions) -> Retry | None:
    retry, max_attempts = options.retry or train.options.retry, _max_attempts(train, options)
    return replace(retry, max_attempts=max_attempts) if retry and max_attempts is not None else retry


CodecOf: TypeAlias = Callable[[Train[Any, Any]], Encoder]

FindTrain: TypeAlias = Callable[[str], tuple[Train[Any, Any], Encoder]]
"""Returns the train with this name, and the encoder of its inputs, which also accepts plain data."""


class DeclarationRegistry:
    """The declarations so far, in the order in which they were written."""

    def __init__(self, codec_of: CodecOf | None = None, find_train: FindTrain | None = None) -> None:
        self._manifests: dict[str, Declaration] = {}
        self._places: list[tuple[int, str | None]] = []
        """How many manifests there were before each call that added some, and the place of the call."""
        self._groups: dict[str, GroupDeclaration] = {}
        self._implied_priorities: dict[str, int] = {}
        self._manifest_graph = Dag()
        self._group_graph = Dag()
        self._codecs: dict[Train[Any, Any], Codec[Any]] = {}
        self._codec_of = codec_of or self._default_codec
        self._find_train = find_train
        self.is_closed = False
        """Whether the app has started: what is declared then would have no effect before its next start."""

    def add(self, declarations: Sequence[tuple[Declaration, ScheduleOptions]]) -> None:
        """Add declarations: all, or none if an external id is taken or a dependency cycle would result."""
        self.refuse_if_closed()
        new: dict[str, Declaration] = {}
        place = definition_place()
        for manifest, _ in declarations:
            self._refuse_duplicate(manifest, new, place)
            new[manifest.external_id] = manifest
        self._connect(new)
        self._places.append((len(self._manifests), place))
        self._manifests |= new
        for manifest, options in declarations:
            self.merge_group(manifest.group, options.group)
            if manifest.priority or options.priority is not None:
                self._implied_priorities[manifest.group] = manifest.priority

    def resolve(self, place: str, train: Train[Any, Any] | str) -> tuple[Train[Any, Any], Encoder]:
        """A train, or the train with this name, and the encoder of its inputs."""
        if isinstance(train, str) and self._find_train is not None:
            return self._find_train(train)
        found = _require_train(place, train)
        return found, self._codec_of(found)

    def merge_group(self, name: str, group: Group) -> None:
        """Merge options of a group into those declared before."""
        self.refuse_if_closed()
        known = self._groups.get(name) or GroupDeclaration(name=name)
        self._groups[name] = known.merge(group)

    def find_group(self, name: str) -> GroupDeclaration | None:
        group = self._groups.get(name)
        return None if group is None else self._with_implied_priority(group)

    def refuse_if_closed(self) -> None:
        if self.is_closed:
            raise DefinitionError(
                "the app has started, so a declaration has no effect; make it before the start, or change "
                "the running system with `await app.manifests.schedule(…)` or `await app.groups.update(…)`"
            )

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

    def _refuse_duplicate(
        self, manifest: Declaration, new: dict[str, Declaration], place: str | None
    ) -> None:
        external_id = manifest.external_id
        holder = self._manifests.get(external_id) or new.get(external_id)
        if holder is not None:
            first = f"{holder.train!r} ({place if external_id in new else self._place_of(external_id)})"
            raise DefinitionError(
                f"external id {external_id!r} is declared twice: for train {first} and for "
                f"train {manifest.train!r} ({place}); give one of them another id"
            )

    def _place_of(self, external_id: str) -> str | None:
        """Where a manifest was declared; searched, since a place for each would cost memory."""
        index = list(self._manifests).index(external_id)
        return self._places[bisect_right(self._places, index, key=itemgetter(0)) - 1][1]

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


In = TypeVar("In")

Items: TypeAlias = Mapping[str, In] | Mapping[int, In] | Iterable[Item[In]]
"""Inputs by id, or `Item` values, which can also name the manifest they depend on."""

ConfigureEach: TypeAlias = Callable[[Item[In]], ScheduleKeywords | None]
"""Returns options for one item of a batch; they override those of the batch."""


@dataclass(frozen=True, slots=True)
class Batch(Generic[In]):
    """What the manifests of a batch share. `name` is the prefix of their external ids and owns them."""

    name: str | None
    keywords: ScheduleKeywords
    configure_each: ConfigureEach[In] | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name, "a batch's name")
        if self.configure_each is not None and not callable(self.configure_each):
            raise InvalidArgument(f"{self.place}: configure_each", "callable", self.configure_each)

    @property
    def place(self) -> str:
        return "a batch" if self.name is None else f"batch {self.name!r}"

    def build_declarations(
        self,
        train: Train[In, Any],
        items: Items[In],
        occasion_of: Callable[[Item[In]], Occasion],
        codec: Encoder,
    ) -> list[tuple[Declaration, ScheduleOptions]]:
        """One declaration for each item, with its options."""
        listed = self._list_items(items)
        shared = options_of(self.place, self.keywords)
        group = self.name or (self._id_of(listed[0]) if listed else None)
        declarations: list[tuple[Declaration, ScheduleOptions]] = []
        for item in listed:
            options = self._item_options(item) if self.configure_each else shared
            declaration = build_declaration(
                train,
                self._id_of(item),
                item.input,
                occasion_of(item),
                options,
                codec=codec,
                group=group,
                batch=self.name,
            )
            declarations.append((declaration, options))
        return declarations

    def _list_items(self, items: Any) -> list[Item[In]]:
        if isinstance(items, Mapping):
            return [Item(key, value) for key, value in cast("Mapping[Any, In]", items).items()]
        listed = list(cast("Iterable[Any]", items)) if isinstance(items, Iterable) else [items]
        for each in listed:
            if not isinstance(each, Item):
                raise DefinitionError(
                    f"{self.place} needs a mapping from ids to inputs, or an Item(id, input) for each "
                    f"(got {format_value(each)})"
                )
        return listed

    def _id_of(self, item: Item[In]) -> str:
        return str(item.id) if self.name is None else f"{self.name}-{item.id}"

    def _item_options(self, item: Item[In]) -> ScheduleOptions:
        place = f"manifest {self._id_of(item)!r}"
        own: Any = self.configure_each(item) if self.configure_each else None
        if own is not None and not isinstance(own, Mapping):
            raise InvalidArgument(f"{place}: what configure_each returns", "a dict of options, or None", own)
        return options_of(place, {**self.keywords, **cast("Mapping[str, Any]", own or {})})
