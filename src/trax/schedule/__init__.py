"""Declare schedules and decide when manifests are due. Pure functions: `now` is an argument.

Declarations           builder      what an app declares: schedule, include, schedule_many, group
                       cursor       chaining: .include, .then_include
                       declaration  values: a manifest, a group, a whole timetable
                       declare      validate one declaration (occasion, options, batch, requirement, ledger)
                       graph        dependency graphs of manifests and groups; refuses cycles

Public helpers         every        intervals: every(minutes=5)
                       cron         cron expressions: cron("0 7 * * mon-fri", tz="Europe/Berlin")
                       exclude      when a manifest must not run: exclude.dates("2026-12-25")
                       misfire      what to do with missed occurrences: fire_all(10)
                       variance     random delay of starts

Time calculations      zones        time zones, wall-clock time and daylight saving time
                       expression   parse and evaluate cron expressions
                       occurrences  the occurrences of a cron expression in its time zone
                       pace         the occurrences of any regular schedule
                       windows      one exclusion window
                       exclusions   whether a manifest is excluded now, and until when

Decisions              decide       what the manifest manager does with a manifest
                       fair         share a limit between groups
                       ending       what the end of a run changes in its manifest
                       due          Fire, Wait or Never; the next run after a run has ended
                       regular      the same for intervals, cron and misfires
                       answers      the values Fire, Wait and Never

Display                describe     schedules in words
                       preview      the next runs, with remarks on daylight saving time
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
