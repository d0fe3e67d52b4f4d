"""`trax lint`: find problems in an app from its code alone, without a database.

Most mistakes raise where they are declared. These are valid one by one but not together: a schedule that
never fires, a group that admits nothing.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from trax.admin.seeding import parents_outside
from trax.errors import DefinitionError
from trax.records.when import Cron
from trax.schedule.exclusions import first_allowed
from trax.schedule.occurrences import next_occurrence

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from trax.host.parts import Parts
    from trax.schedule.declaration import Declaration, Timetable

LOOKAHEAD: Final = timedelta(days=4 * 365 + 1)
"""Long enough to include a leap day."""


def lint(parts: Parts, *, now: datetime) -> list[str]:
    """The problems found, one line each."""
    return list(dict.fromkeys([*_train_problems(parts), *_schedule_problems(parts, now)]))


def _train_problems(parts: Parts) -> Iterator[str]:
    for train in parts.trains:
        try:
            parts.submitters.check([train])
        except DefinitionError as wrong:
            yield str(wrong)
    if parts.settings.max_active_jobs == 0:
        yield "max_active_jobs is 0: no job of this app ever starts; set a positive number or None"


def _schedule_problems(parts: Parts, now: datetime) -> Iterator[str]:
    timetable = parts.declarations.timetable()
    yield from _group_problems(timetable)
    yield from _parent_problems(timetable)
    for each in timetable.manifests:
        yield from _time_problems(each, now)


def _group_problems(timetable: Timetable) -> Iterator[str]:
    for group in timetable.groups:
        if group.max_active_jobs == 0:
            yield (
                f"group {group.name!r} has max_active_jobs=0: nothing in it ever starts; "
                "use enabled=False to switch the group off"
            )


def _parent_problems(timetable: Timetable) -> Iterator[str]:
    elsewhere = parents_outside(timetable.manifests)
    disabled = {each.external_id for each in timetable.manifests if each.enabled is False}
    for each in timetable.manifests:
        place = f"manifest {each.external_id!r} depends on {each.depends_on!r}"
        if each.depends_on in elsewhere:
            yield f"{place}, which this code does not declare: it must be in the database when the app starts"
        if each.depends_on in disabled and each.enabled is not False:
            yield f"{place}, which is disabled: it runs only when triggered"


def _time_problems(declaration: Declaration, now: datetime) -> Iterator[str]:
    place = f"manifest {declaration.external_id!r}"
    if isinstance(declaration.schedule, Cron) and not _has_occurrence(declaration.schedule, now):
        yield f"{place}: {declaration.schedule.expression!r} has no occurrence within four years"
    zone = declaration.schedule.time_zone if isinstance(declaration.schedule, Cron) else "UTC"
    if first_allowed(declaration.exclusions, zone, now) is None:
        yield f"{place}: its exclusions leave no moment free within ten years; it never runs"


def _has_occurrence(cron: Cron, now: datetime) -> bool:
    try:
        return next_occurrence(cron, now) <= now + LOOKAHEAD
    except DefinitionError:
        return False
