"""An occurrence without an entry is missed only if nothing explains it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from trax import exclude
from trax.inspect.missed_occurrences import MinuteSet, OccurrenceWatch
from trax.records.schedule import Cron, Interval, Misfire, Timing
from trax.records.states import MisfirePolicy, ScheduleType
from trax.store.history import EntryRow, TimedManifest

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
EVERY_HOUR = Timing(ScheduleType.INTERVAL, NOON, Interval(3600))
HOURLY = Timing(ScheduleType.CRON, NOON, Cron("0 * * * *", "UTC", None))


def clock(text: str) -> datetime:
    return datetime.fromisoformat(f"2027-03-01T{text}Z")


def entry(number: int, moment: str, manifest: int = 1, **values: Any) -> EntryRow:
    at = clock(moment)
    row = EntryRow(
        id=number,
        manifest_id=manifest,
        group_id=1,
        created_at=at,
        scheduled_for=at,
        dispatched_at=at,
        attempt=1,
        train="work",
        origin="schedule",
        unique_key=None,
        status="dispatched",
        metadata_id=number,
        scheduled_at=None,
        ready=True,
        parked=None,
        dead_letter_id=None,
        dispatch_attempts=0,
        retry=None,
        run_id=number,
        is_own_run=True,
        run_state="completed",
        run_attempt=1,
        run_created_at=at,
        run_ended_at=at,
        manifest_row=manifest,
        max_retries=3,
        manifest_changed_at=at,
        group_row=1,
        group_priority=0,
        expected_priority=None,
        letter_row=None,
    )
    return row._replace(**values)


OTHERS = [entry(100 + number, f"13:{number:02}", manifest=9) for number in range(10, 60, 10)]
"""Another schedule, which has run every ten minutes."""


def watched(
    first: EntryRow, *rest: EntryRow, timing: Timing = HOURLY, changed: str = "11:00"
) -> tuple[list[str], int]:
    watch = OccurrenceWatch({1: TimedManifest(1, "hourly", 1, clock(changed), timing)})
    entries = sorted([first, *OTHERS, *rest], key=lambda each: each.created_at)
    found = [finding for each in entries for finding in watch.add(each)]
    return [finding.text.split(" and ")[0] for finding in found], watch.undecided


FIRST, LATE = entry(1, "12:00"), entry(2, "14:00")


def test_an_occurrence_between_two_entries_is_missed() -> None:
    assert watched(FIRST, LATE) == (["manifest 'hourly' (1) was due at 2027-03-01 13:00:00Z"], 0)


def test_one_entry_after_the_other_misses_nothing() -> None:
    assert watched(FIRST, entry(2, "13:00"), entry(3, "14:00")) == ([], 0)


@pytest.mark.parametrize(
    "first",
    [
        entry(1, "12:00", run_ended_at=clock("13:30")),
        entry(1, "12:00", run_state="failed"),
        entry(1, "12:00", run_state=None, status="cancelled"),
    ],
)
def test_a_run_that_was_active_or_did_not_complete_may_be_the_reason(first: EntryRow) -> None:
    assert watched(first, LATE) == ([], 1)


def test_a_changed_manifest_may_have_had_another_schedule() -> None:
    assert watched(FIRST, LATE, changed="12:30") == ([], 1)


def test_an_excluded_occurrence_is_not_missed() -> None:
    timing = HOURLY._replace(exclusions=(exclude.time_window("12:30", "13:55"),))

    assert watched(FIRST, LATE, timing=timing) == ([], 0)


def test_an_occurrence_that_was_late_and_then_excluded_may_have_a_reason() -> None:
    timing = HOURLY._replace(exclusions=(exclude.time_window("13:05", "13:55"),))

    assert watched(FIRST, LATE, timing=timing) == ([], 1)


def test_an_occurrence_that_was_too_late_by_its_policy_is_not_missed() -> None:
    do_nothing = Misfire(MisfirePolicy.DO_NOTHING, timedelta(minutes=5))

    assert watched(FIRST, LATE, timing=HOURLY._replace(misfire=do_nothing)) == ([], 1)


def test_a_missed_occurrence_without_other_entries_is_undecided() -> None:
    watch = OccurrenceWatch({1: TimedManifest(1, "hourly", 1, clock("11:00"), HOURLY)})

    assert [list(watch.add(each)) for each in (FIRST, LATE)] == [[], []]
    assert watch.undecided == 1


def test_a_schedule_that_has_stopped_is_found_at_the_end() -> None:
    watch = OccurrenceWatch({1: TimedManifest(1, "hourly", 1, clock("11:00"), HOURLY)})
    for each in (FIRST, *OTHERS):
        assert list(watch.add(each)) == []

    assert [finding.ids for finding in watch.finish(clock("13:55"))] == [(1,)]


@pytest.mark.parametrize(
    ("ended", "found"),
    [("12:05", [(1,)]), ("12:50", []), (None, [])],
    ids=["was due at 13:05", "is due at 13:50", "is running"],
)
def test_an_interval_that_has_stopped_is_found_at_the_end(ended: str | None, found: list[Any]) -> None:
    watch = OccurrenceWatch({1: TimedManifest(1, "hourly", 1, clock("11:00"), EVERY_HOUR)})
    for each in (entry(1, "12:00", run_ended_at=ended and clock(ended)), *OTHERS):
        assert list(watch.add(each)) == []

    assert [finding.ids for finding in watch.finish(clock("13:55"))] == found


def test_an_interval_counts_from_the_end_of_its_last_run() -> None:
    first = entry(1, "12:00", run_ended_at=clock("12:40"))

    assert watched(first, entry(2, "13:40"), timing=EVERY_HOUR) == ([], 0)
    assert watched(FIRST, entry(2, "14:00"), timing=EVERY_HOUR) == (
        ["manifest 'hourly' (1) was due at 2027-03-01 13:00:00Z"],
        0,
    )


def test_an_interval_whose_last_run_failed_may_have_a_reason() -> None:
    assert watched(FIRST._replace(run_state="failed"), LATE, timing=EVERY_HOUR) == ([], 1)


def test_a_set_of_minutes_finds_the_first_whole_one_between() -> None:
    minutes = MinuteSet()
    minutes.add(clock("13:10:30"))
    minutes.add(datetime(9999, 1, 1, tzinfo=UTC))

    assert minutes.first_between(clock("13:00"), clock("13:30")) == clock("13:10")
    assert minutes.first_between(clock("13:10"), clock("13:30")) is None
    assert minutes.first_between(clock("13:00"), clock("13:10")) is None


@pytest.mark.parametrize("timing", [HOURLY, EVERY_HOUR], ids=["cron", "interval"])
@pytest.mark.parametrize(
    ("changed_at", "since", "missed"),
    [
        (clock("10:30"), None, True),
        (clock("10:30"), clock("10:00"), True),
        (clock("10:30"), clock("11:00"), False),
        (clock("11:59"), None, False),
        (datetime.max.replace(tzinfo=UTC), None, False),
    ],
)
def test_a_schedule_that_was_never_queued_is_expected_from_its_last_change_on(
    timing: Timing, changed_at: datetime, since: datetime | None, missed: bool
) -> None:
    minutes = MinuteSet()
    for minute in range(60, 120):
        minutes.add(clock("10:00") + timedelta(minutes=minute))
    manifest = TimedManifest(1, "hourly", 1, changed_at, timing, was_queued=False)

    found = list(OccurrenceWatch({1: manifest}, minutes).finish(clock("11:55"), since))

    assert bool(found) == missed
