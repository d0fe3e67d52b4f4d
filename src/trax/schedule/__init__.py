"""WHEN: what is declared, what is due, and when to look again. All of it pure: `now` is an argument.

Declared               builder      what an app declares: schedule, include, schedule_many, group
                       cursor       chaining: .include, .then_include
                       declaration  a manifest, a group, a whole timetable, as values
                       declare      one declaration, checked (occasion, options, batch, requirement, ledger)
                       graph        who waits for whom, and never in a circle

You write              every        distances: every(minutes=5)
                       cron         clock times: cron("0 7 * * mon-fri", tz="Europe/Berlin")
                       exclude      when it must not run: exclude.dates("2026-12-25")
                       misfire      what happens to what was missed: fire_all(10)
                       variance     spreading starts out in time

Moments                zones        what the clocks on a wall show, and when; all that is known of summer time
                       expression   cron text, checked and walked along
                       occurrences  the moments of a cron expression in its zone
                       pace         the regular moments of any schedule
                       windows      one exclusion window on a wall clock
                       exclusions   whether a manifest is kept from running, and until when

Decisions              decide       what happens to a manifest the manager looks at
                       fair         who is served when not everyone can be
                       ending       what the end of a run means for its manifest
                       due          Fire, Wait or Never; and what a run that ended means for the next one
                       regular      the part of it that is about intervals, cron and misfires
                       answers      the three answers

For people             describe     schedules in words
                       preview      the next runs, and what summer time does to them
"""

from __future__ import annotations

from trax.records.exclusions import exclusions_from_json, exclusions_to_json
from trax.records.when import Calendar
from trax.schedule import exclude
from trax.schedule.answers import Answer, Fire, Never, Wait
from trax.schedule.builder import Declarations
from trax.schedule.cron import cron
from trax.schedule.declaration import UNSET, Group, Item
from trax.schedule.describe import explained, to_cron_expression
from trax.schedule.due import Upcoming, after_cancellation, after_success, first_look, look
from trax.schedule.every import every, with_variance
from trax.schedule.exclusions import first_allowed, is_excluded
from trax.schedule.misfire import OnMisfire, fire_all, policy_and_limit
from trax.schedule.occurrences import latest_occurrence, next_occurrence, occurrences
from trax.schedule.variance import jittered

__all__ = [
    "UNSET",
    "Answer",
    "Calendar",
    "Declarations",
    "Fire",
    "Group",
    "Item",
    "Never",
    "OnMisfire",
    "Upcoming",
    "Wait",
    "after_cancellation",
    "after_success",
    "cron",
    "every",
    "exclude",
    "exclusions_from_json",
    "exclusions_to_json",
    "explained",
    "fire_all",
    "first_allowed",
    "first_look",
    "is_excluded",
    "jittered",
    "latest_occurrence",
    "look",
    "next_occurrence",
    "occurrences",
    "policy_and_limit",
    "to_cron_expression",
    "with_variance",
]
