"""Declare manifests and groups; chains are written schedule(…).include(…).then_include(…)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

from trax.errors import DefinitionError, InvalidArgument, explain_call
from trax.records.schedule import Calendar, Cron, Interval, Window
from trax.schedule.declaration import UNSET, AfterManifest, Group, Once, options_of, parse_when
from trax.schedule.declare import Batch, DeclarationRegistry, build_declaration
from trax.schedule.validate import DURATION, LABEL
from trax.train.options import check_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from trax.schedule.declaration import (
        GroupDeclaration,
        Item,
        Occasion,
        ScheduleKeywords,
        Timetable,
        Unset,
        When,
    )
    from trax.schedule.declare import CodecOf, ConfigureEach, FindTrain, Items
    from trax.train import Train


In = TypeVar("In")


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position in a chain: `include` depends on `root`, `then_include` depends on `last`.

    Immutable: every call returns a new cursor, so a chain can branch.
    """

    registry: DeclarationRegistry
    root: str | None = None
    last: str | None = None

    @explain_call("schedule(train, external_id, input, every(…)), where a train without input gets None")
    def schedule(
        self,
        train: Train[In, Any] | str,
        external_id: str,
        input: In,  # noqa: A002 - the public name
        when: When,
        **options: Unpack[ScheduleKeywords],
    ) -> Cursor:
        """Run a train on a schedule. Manifests included next depend on this one."""
        place = _place_of(external_id)
        if isinstance(input, Interval | Cron):
            raise DefinitionError(f"{place}: the input comes before the schedule, and None if there is none")
        self._declare(train, external_id, input, parse_when(place, when), options)
        return Cursor(self.registry, root=external_id, last=external_id)

    @explain_call("include(train, external_id, input), where a train without input gets None")
    def include(
        self,
        train: Train[In, Any] | str,
        external_id: str,
        input: In,  # noqa: A002
        **options: Unpack[ScheduleKeywords],
    ) -> Cursor:
        """Run a train after each success of the root manifest of this chain."""
        _place_of(external_id)
        if self.root is None:
            raise DefinitionError(
                f"include {external_id!r} has no root to depend on: it must follow schedule(…) in one chain; "
                f"after schedule_many or schedule_once use include_many with Item(…, depends_on=…)"
            )
        self._declare(train, external_id, input, AfterManifest(self.root), options)
        return replace(self, last=external_id)

    @explain_call("then_include(train, external_id, input), where a train without input gets None")
    def then_include(
        self,
        train: Train[In, Any] | str,
        external_id: str,
        input: In,  # noqa: A002
        **options: Unpack[ScheduleKeywords],
    ) -> Cursor:
        """Run a train after each success of the previous manifest in this chain."""
        _place_of(external_id)
        if self.last is None:
            raise DefinitionError(
                f"then_include {external_id!r} has no single manifest before it to depend on: it must follow "
                f"schedule, include or then_include in one chain; after a batch use then_include_many with "
                f"Item(…, depends_on=…)"
            )
        self._declare(train, external_id, input, AfterManifest(self.last), options)
        return replace(self, last=external_id)

    @explain_call("schedule_many(train, name, {id: input}, every(…))")
    def schedule_many(
        self,
        train: Train[In, Any] | str,
        name: str | None,
        items: Items[In],
        when: When,
        *,
        configure_each: ConfigureEach[In] | None = None,
        **options: Unpack[ScheduleKeywords],
    ) -> Cursor:
        """Run a train on a schedule for each item. External ids are `name-id`; the batch `name` owns them."""
        batch = Batch(name, options, configure_each)
        occasion = parse_when(batch.place, when)
        self._declare_batch(train, batch, items, lambda item: _require_no_parent(item, occasion))
        return Cursor(self.registry)

    @explain_call("include_many(train, name, [Item(id, input, depends_on=…)])")
    def include_many(
        self,
        train: Train[In, Any] | str,
        name: str | None,
        items: Items[In],
        *,
        configure_each: ConfigureEach[In] | None = None,
        **options: Unpack[ScheduleKeywords],
    ) -> Cursor:
        """Run a train for each item after each success of its `depends_on`, or else of the root manifest."""
        batch = Batch(name, options, configure_each)
        self._declare_batch(
            train, batch, items, lambda item: _require_parent(item, "include_many", self.root)
        )
        return replace(self, last=None)

    @explain_call("then_include_many(train, name, [Item(id, input, depends_on=…)])")
    def then_include_many(
        self,
        train: Train[In, Any] | str,
        name: str | None,
        items: Items[In],
        *,
        configure_each: ConfigureEach[In] | None = None,
        **options: Unpack[ScheduleKeywords],
    ) -> Cursor:
        """Run a train for each item after each success of its `depends_on`."""
        batch = Batch(name, options, configure_each)
        self._declare_batch(train, batch, items, lambda item: _require_parent(item, "then_include_many"))
        return replace(self, last=None)

    @explain_call("schedule_once(train, external_id, input, delay=…), where a train without input gets None")
    def schedule_once(
        self,
        train: Train[In, Any] | str,
        external_id: str,
        input: In,  # noqa: A002
        delay: timedelta = timedelta(),
        **options: Unpack[ScheduleKeywords],
    ) -> Cursor:
        """Run a train once, `delay` after the app starts."""
        DURATION(f"{_place_of(external_id)}: delay", delay)
        self._declare(train, external_id, input, Once(delay), options)
        return Cursor(self.registry)

    def _declare(
        self,
        train: Train[Any, Any] | str,
        external_id: str,
        value: Any,
        occasion: Occasion,
        keywords: ScheduleKeywords,
    ) -> None:
        place = _place_of(external_id)
        found, codec = self.registry.resolve(place, train)
        options = options_of(place, keywords)
        manifest = build_declaration(found, external_id, value, occasion, options, codec=codec)
        self.registry.add([(manifest, options)])

    def _declare_batch(
        self,
        train: Train[Any, Any] | str,
        batch: Batch[Any],
        items: Items[Any],
        occasion_for: Callable[[Item[Any]], Occasion],
    ) -> None:
        found, codec = self.registry.resolve(batch.place, train)
        self.registry.add(batch.build_declarations(found, items, occasion_for, codec))


def _place_of(external_id: str) -> str:
    """The start of a message about this manifest. Raises DefinitionError for an invalid external id."""
    check_name(external_id, "an external id")
    return f"manifest {external_id!r}"


def _require_no_parent(item: Item[Any], occasion: Occasion) -> Occasion:
    if item.depends_on is not None:
        raise DefinitionError(
            f"schedule_many: item {item.id!r} depends on {item.depends_on!r}, but has a schedule of its own; "
            f"use include_many for items that run after another manifest"
        )
    return occasion


def _require_parent(item: Item[Any], verb: str, default: str | None = None) -> AfterManifest:
    parent = item.depends_on or default
    if parent is None:
        raise DefinitionError(
            f"{verb}: item {item.id!r} has nothing to depend on; write Item({item.id!r}, …, depends_on=…) "
            f"with the full external id of its parent"
        )
    return AfterManifest(parent)


def _windows_of(calendar: str, windows: Any) -> tuple[Window, ...]:
    listed = tuple(cast("Iterable[Any]", windows)) if isinstance(windows, Iterable) else (windows,)
    for each in listed:
        if not isinstance(each, Window):
            place, expected = f"calendar {calendar!r}: windows", "a list of windows such as exclude.dates(…)"
            raise InvalidArgument(place, expected, each)
    return listed


class Declarations:
    """The declarations of an app. An invalid one raises where it is written and is not added."""

    def __init__(self, codec_of: CodecOf | None = None, find_train: FindTrain | None = None) -> None:
        """`codec_of` returns the input codec of a train; by default codecs are created here.

        Without `find_train`, trains cannot be given by name.
        """
        self._registry = DeclarationRegistry(codec_of, find_train)
        self._calendars: dict[str, Calendar] = {}

        start = Cursor(self._registry)
        self.schedule = start.schedule
        self.schedule_many = start.schedule_many
        self.schedule_once = start.schedule_once
        self.include = start.include
        self.include_many = start.include_many
        self.then_include = start.then_include
        self.then_include_many = start.then_include_many

    def after(self, external_id: str) -> Cursor:
        """Continue a chain from a manifest, which need not be declared here."""
        return Cursor(self._registry, root=external_id, last=external_id)

    @explain_call("group(name, max_active_jobs=…, priority=…, enabled=…)")
    def group(
        self,
        name: str,
        *,
        max_active_jobs: int | Unset | None = UNSET,
        priority: int | Unset = UNSET,
        enabled: bool | Unset = UNSET,
    ) -> Group:
        """Set options of a group. Omitted ones stay unchanged; `max_active_jobs=None` means no limit."""
        LABEL("a group's name", name)
        group = Group(name, max_active_jobs, priority, enabled)
        self._registry.merge_group(name, group)
        return group

    def calendar(self, name: str, windows: Iterable[Window]) -> Calendar:
        """Name windows that manifests share: `exclude=holidays`, or `exclude=exclude.outside(holidays)`."""
        self._registry.refuse_if_closed()
        LABEL("a calendar's name", name)
        calendar = Calendar(name, _windows_of(name, windows))
        if self._calendars.setdefault(name, calendar) != calendar:
            raise DefinitionError(
                f"calendar {name!r} is already declared with other windows; use another name"
            )
        return calendar

    def find_group(self, name: str) -> GroupDeclaration | None:
        """The declared options of a group, if it is declared."""
        return self._registry.find_group(name)

    def close(self, *, is_closed: bool = True) -> None:
        """Refuse declarations from now on, while the app runs; or accept them again."""
        self._registry.is_closed = is_closed

    def timetable(self) -> Timetable:
        """Everything declared so far, validated."""
        return self._registry.timetable()
