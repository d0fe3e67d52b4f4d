"""`trax lint`: what is wrong with an app, as far as its code alone can tell.

Most mistakes are refused where they are written. What is left here makes sense word by word, and not as a
whole: a schedule that never comes, a group that lets nobody in.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from trax.admin.seeding import parents_elsewhere
from trax.errors import DefinitionError
from trax.records.when import Cron
from trax.schedule.exclusions import first_allowed
from trax.schedule.occurrences import next_occurrence

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from trax.host.parts import Parts
    from trax.schedule.declaration import Declaration, Timetable

FORESEEN: Final = timedelta(days=4 * 365 + 1)
"""A leap day comes round within it."""


def lint(parts: Parts, *, now: datetime) -> list[str]:
    """What to look at, a line each."""
    return list(dict.fromkeys([*_of_trains(parts), *_of_schedules(parts, now)]))


def _of_trains(parts: Parts) -> Iterator[str]:
    for train in parts.trains:
        try:
            parts.submitters.check([train])
        except DefinitionError as wrong:
            yield str(wrong)
    if parts.settings.max_active_jobs == 0:
        yield "max_active_jobs is 0: no job of this app ever starts; give it a number, or None for no limit"


def _of_schedules(parts: Parts, now: datetime) -> Iterator[str]:
    timetable = parts.declarations.checked()
    yield from _of_groups(timetable)
    yield from _of_parents(timetable)
    for each in timetable.manifests:
        yield from _of_times(each, now)


def _of_groups(timetable: Timetable) -> Iterator[str]:
    for group in timetable.groups:
        if group.max_active_jobs == 0:
            yield (
                f"group {group.name!r} has max_active_jobs=0: nothing in it ever starts; "
                "say enabled=False if that is meant"
            )


def _of_parents(timetable: Timetable) -> Iterator[str]:
    elsewhere = parents_elsewhere(timetable.manifests)
    disabled = {each.external_id for each in timetable.manifests if each.enabled is False}
    for each in timetable.manifests:
        place = f"manifest {each.external_id!r} depends on {each.depends_on!r}"
        if each.depends_on in elsewhere:
            yield f"{place}, which this code does not declare: it must be in the database when the app starts"
        if each.depends_on in disabled and each.enabled is not False:
            yield f"{place}, which is disabled: it never runs by itself"


def _of_times(each: Declaration, now: datetime) -> Iterator[str]:
    place = f"manifest {each.external_id!r}"
    if isinstance(each.schedule, Cron) and not _comes_round(each.schedule, now):
        yield f"{place}: {each.schedule.expression!r} names no moment within four years"
    zone = each.schedule.time_zone if isinstance(each.schedule, Cron) else "UTC"
    if first_allowed(each.exclusions, zone, now) is None:
        yield f"{place}: its exclusions leave no moment free within ten years; it never runs"


def _comes_round(cron: Cron, now: datetime) -> bool:
    try:
        return next_occurrence(cron, now) <= now + FORESEEN
    except DefinitionError:
        return False
