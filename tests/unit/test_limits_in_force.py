"""Which limit was in force when, from the audit log and the rows; where they say nothing, it is not known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from trax.inspect.limits_in_force import (
    NOT_KNOWN,
    SETTLING,
    ExemptTrains,
    Limit,
    LimitTimeline,
    global_timeline,
    group_timelines,
    last_enabled_changes,
)
from trax.store.recorded_changes import GroupRow, LimitChange

START = datetime(2027, 3, 1, 12, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return START + timedelta(minutes=minutes)


def group(limit: int | None, *, enabled: bool = True, created: float = 0, updated: float = 0) -> GroupRow:
    return GroupRow(1, "etl", limit, enabled, at(created), at(updated))


def change(minutes: float, before: Any, after: Any, action: str = "groups.update") -> LimitChange:
    return LimitChange(1, at(minutes), action, "group", ["etl"], before, after, before, after)


def declared(minutes: float, limit: Any) -> LimitChange:
    after = {"max_active_jobs": limit}
    names = ["max_active_jobs"]
    return LimitChange(1, at(minutes), "settings.declare", "setting", names, None, after, None, None)


def stored(minutes: float, before: str | None, after: str | None, verb: str = "update") -> LimitChange:
    rows = {"max_active_jobs": before}, {"max_active_jobs": after}
    return LimitChange(1, at(minutes), f"settings.{verb}", "setting", ["max_active_jobs"], None, None, *rows)


def limits_of(row: GroupRow, *changes: LimitChange, is_complete: bool = True) -> LimitTimeline:
    return group_timelines([row], changes, is_complete=is_complete)[1]


def told(timeline: LimitTimeline, *minutes: float) -> list[Limit]:
    return [timeline.at(at(minute)) for minute in minutes]


def exempting(minutes: float, trains: Any) -> LimitChange:
    after = {"max_active_jobs": 3, "exempt_trains": trains}
    return declared(minutes, 3)._replace(after=after)


def contradictions(exempt: ExemptTrains, train: str, minutes: float) -> tuple[bool | None, bool | None]:
    """Whether a run that is recorded as exempt, or as not exempt, contradicts what servers declared."""
    moment = at(minutes)
    return exempt.contradicts(train, moment, exempt=True), exempt.contradicts(train, moment, exempt=False)


def test_a_run_contradicts_what_all_servers_declared_about_its_train() -> None:
    exempt = ExemptTrains([exempting(0, ["free"])])

    assert contradictions(exempt, "free", 5) == (False, True)
    assert contradictions(exempt, "work", 5) == (True, False)
    assert contradictions(exempt, "free", -1) == (None, None)


def test_while_servers_differ_or_change_nothing_is_contradicted() -> None:
    exempt = ExemptTrains(
        [exempting(0, ["free"]), exempting(10, {"servers": [[], ["free"]]}), exempting(20, [])]
    )

    assert contradictions(exempt, "free", 15) == (False, False)
    assert contradictions(exempt, "free", 20.5) == (False, False)
    assert contradictions(exempt, "free", 22) == (True, False)


def test_without_a_list_of_exempt_trains_nothing_is_known() -> None:
    exempt = ExemptTrains([exempting(0, ["free"]), declared(10, 3)])

    assert contradictions(exempt, "free", 12) == (None, None)


def test_a_group_that_never_changed_has_its_limit_since_it_was_created() -> None:
    assert told(limits_of(group(3)), -1, 0, 100) == [NOT_KNOWN, 3, 3]


def test_a_group_that_was_changed_without_a_record_is_known_since_then() -> None:
    assert told(limits_of(group(3, updated=10)), 5, 10.5, 11) == [NOT_KNOWN, NOT_KNOWN, 3]


def test_a_change_applies_after_a_minute_in_which_the_higher_limit_counts() -> None:
    lowered = limits_of(
        group(2), declared(0, None), change(10, {"max_active_jobs": 5}, {"max_active_jobs": 2})
    )
    raised = limits_of(
        group(5), declared(0, None), change(10, {"max_active_jobs": 2}, {"max_active_jobs": 5})
    )

    assert told(lowered, 9, 10, 10.5, 11) == [5, 5, 5, 2]
    assert told(raised, 9, 10, 10.5, 11) == [2, 5, 5, 5]
    assert timedelta(minutes=1) == SETTLING


def test_before_the_first_record_the_limit_is_not_known_unless_the_log_is_complete() -> None:
    lowered = change(10, {"max_active_jobs": 5}, {"max_active_jobs": 2})

    assert told(limits_of(group(2), lowered), 9, 10, 11) == [NOT_KNOWN, 5, 2]
    assert told(limits_of(group(2), declared(0, None), lowered, is_complete=False), 9) == [NOT_KNOWN]
    assert told(limits_of(group(2), declared(0, None), lowered), 9) == [5]


def test_a_disabled_group_has_the_limit_0() -> None:
    timeline = limits_of(
        group(2, enabled=False), declared(0, None), change(10, {"enabled": True}, {"enabled": False})
    )

    assert told(timeline, 9, 11) == [2, 0]


def test_changes_of_a_deleted_group_of_the_same_name_do_not_count() -> None:
    old = change(-10, {"max_active_jobs": 5}, {"max_active_jobs": 9})

    assert told(limits_of(group(2), old), 0, 10) == [2, 2]


def test_since_when_a_group_is_enabled_does_not_depend_on_its_limit() -> None:
    limit = change(10, {"max_active_jobs": 5}, {"max_active_jobs": 2})
    both = (limit, change(20, {"enabled": False}, {"enabled": True}))

    assert last_enabled_changes([group(2, updated=10)], [declared(0, None), limit], is_complete=True) == {
        1: at(0)
    }
    assert last_enabled_changes([group(2, updated=20)], both, is_complete=True) == {1: at(20)}


def test_the_global_limit_is_what_servers_declare_unless_an_operator_has_stored_one() -> None:
    changes = [declared(0, 10), stored(10, None, "4"), stored(20, "4", None, "reset"), declared(30, None)]

    assert told(global_timeline(changes, None), -1, 5, 11, 25, 31) == [NOT_KNOWN, 10, 4, 10, None]


def test_the_largest_limit_of_differing_servers_counts() -> None:
    assert told(global_timeline([declared(0, [5, 10])], None), 1) == [10]
    assert told(global_timeline([declared(0, [5, None])], None), 1) == [None]


def test_a_stored_limit_without_a_record_is_known_since_it_was_written() -> None:
    timeline = global_timeline([declared(0, 10)], ("4", at(10)))

    assert told(timeline, 5, 10.5, 11) == [NOT_KNOWN, NOT_KNOWN, 4]


def test_a_stored_value_that_is_no_limit_is_not_known() -> None:
    assert told(global_timeline([declared(0, 10)], ("many", at(0))), 5) == [NOT_KNOWN]
