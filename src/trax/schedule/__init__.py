"""Declare schedules and decide when manifests are due. Pure functions: `now` is an argument.

Write
every.py        intervals: every(minutes=5); variance, a random delay of starts
cron.py         cron expressions: cron("0 7 * * mon-fri", tz="Europe/Berlin"), and their occurrences
exclude.py      when a manifest must not run: exclude.dates("2026-12-25")
builder.py      what an app declares: schedule, include, schedule_many, group

Declare
declaration.py  values: a manifest, a group, options, a whole timetable
declare.py      build and validate one declaration, or a batch
validate.py     validate single options and arguments
graph.py        dependency graphs of manifests and groups; refuse cycles

Decide
zones.py        time zones, wall-clock time and daylight saving time
exclusions.py   whether a manifest is excluded now, and until when
misfire.py      intervals and cron: Fire, Wait or Never; what to do with missed occurrences
due.py          whether a manifest is due; the next run after a run has ended
decide.py       what the manager does with a manifest, and what the end of a run changes

Show
preview.py      the next runs, and schedules in words
"""

from __future__ import annotations

from trax.records.schedule import Calendar, exclusions_from_json, exclusions_to_json
from trax.schedule import exclude
from trax.schedule.builder import Declarations
from trax.schedule.cron import cron, latest_occurrence, next_occurrence, occurrences
from trax.schedule.declaration import UNSET, Group, Item
from trax.schedule.due import NextRun, after_cancellation, after_success, check_due, first_scheduled_run
from trax.schedule.every import add_jitter, every, with_variance
from trax.schedule.exclusions import first_allowed, is_excluded
from trax.schedule.misfire import DueStatus, Fire, Never, OnMisfire, Wait, fire_all, policy_and_limit
from trax.schedule.preview import explain, to_cron_expression

__all__ = [
    "UNSET",
    "Calendar",
    "Declarations",
    "DueStatus",
    "Fire",
    "Group",
    "Item",
    "Never",
    "NextRun",
    "OnMisfire",
    "Wait",
    "add_jitter",
    "after_cancellation",
    "after_success",
    "check_due",
    "cron",
    "every",
    "exclude",
    "exclusions_from_json",
    "exclusions_to_json",
    "explain",
    "fire_all",
    "first_allowed",
    "first_scheduled_run",
    "is_excluded",
    "latest_occurrence",
    "next_occurrence",
    "occurrences",
    "policy_and_limit",
    "to_cron_expression",
    "with_variance",
]
