"""Where an app's declarations begin. Nothing here touches a database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.errors import DefinitionError
from trax.records.when import Calendar
from trax.schedule.cursor import Cursor
from trax.schedule.declaration import UNSET, Group
from trax.schedule.ledger import Ledger
from trax.schedule.requirement import LABEL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trax.records.when import Window
    from trax.schedule.declaration import Timetable, Unset
    from trax.schedule.ledger import CodecOf


class Declarations:
    """Collects what is declared. What is wrong is said where it is written, and nothing of it is kept."""

    def __init__(self, codec_of: CodecOf | None = None) -> None:
        """`codec_of` gives the codec of a train's input, for whoever has made them already."""
        self._ledger = Ledger(codec_of)
        self._calendars: dict[str, Calendar] = {}

        start = Cursor(self._ledger)
        self.schedule = start.schedule
        self.schedule_many = start.schedule_many
        self.schedule_once = start.schedule_once
        self.include = start.include
        self.include_many = start.include_many
        self.then_include = start.then_include
        self.then_include_many = start.then_include_many

    def after(self, external_id: str) -> Cursor:
        """A chain that goes on from a manifest, which need not be declared here."""
        return Cursor(self._ledger, root=external_id, last=external_id)

    def group(
        self,
        name: str,
        *,
        max_active_jobs: int | Unset | None = UNSET,
        priority: int | Unset = UNSET,
        enabled: bool | Unset = UNSET,
    ) -> Group:
        """Say how a group is handled. What is left out stays as it is; None is no limit."""
        LABEL("a group's name", name)
        said = Group(name, max_active_jobs, priority, enabled)
        self._ledger.say(name, said)
        return said

    def calendar(self, name: str, windows: Iterable[Window]) -> Calendar:
        """Name windows for manifests to share: `exclude=holidays`, or `exclude=exclude.outside(holidays)`."""
        LABEL("a calendar's name", name)
        made = Calendar(name, tuple(windows))
        if self._calendars.setdefault(name, made) != made:
            raise DefinitionError(
                f"calendar {name!r} is there already, with other windows; give it another name"
            )
        return made

    def checked(self) -> Timetable:
        """Everything declared so far, once it is known that nothing waits for itself."""
        return self._ledger.checked()
