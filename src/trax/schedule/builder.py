"""Collect the manifests, groups and calendars that an app declares. No database access."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.errors import DefinitionError
from trax.records.when import Calendar
from trax.schedule.cursor import Cursor
from trax.schedule.declaration import UNSET, Group
from trax.schedule.ledger import DeclarationRegistry
from trax.schedule.requirement import LABEL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trax.records.when import Window
    from trax.schedule.declaration import Timetable, Unset
    from trax.schedule.ledger import CodecOf


class Declarations:
    """The declarations of an app. An invalid one raises where it is written and is not added."""

    def __init__(self, codec_of: CodecOf | None = None) -> None:
        """`codec_of` returns the input codec of a train; by default codecs are created here."""
        self._registry = DeclarationRegistry(codec_of)
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
        LABEL("a calendar's name", name)
        calendar = Calendar(name, tuple(windows))
        if self._calendars.setdefault(name, calendar) != calendar:
            raise DefinitionError(
                f"calendar {name!r} is already declared with other windows; use another name"
            )
        return calendar

    def timetable(self) -> Timetable:
        """Everything declared so far, validated."""
        return self._registry.timetable()
