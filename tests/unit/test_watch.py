"""When a process may declare others lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from trax.records.worker import HeartbeatStreak

NOON = datetime(2027, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
PERIOD, GAP = 20 * SECOND, 10 * SECOND


def beaten(*seconds: float) -> HeartbeatStreak:
    watch = HeartbeatStreak.empty()
    for each in seconds:
        watch = watch.after_heartbeat(NOON + each * SECOND, GAP)
    return watch


def test_a_process_without_any_heartbeat_declares_no_worker_lost() -> None:
    assert not HeartbeatStreak.empty().has_lasted(PERIOD, NOON)


def test_a_process_with_heartbeats_for_a_full_period_may_declare_workers_lost() -> None:
    watch = beaten(0, 5, 10, 15, 20)

    assert not watch.has_lasted(PERIOD, NOON + 19 * SECOND)
    assert watch.has_lasted(PERIOD, NOON + 20 * SECOND)


def test_a_gap_starts_the_period_again() -> None:
    watch = beaten(0, 5, 10, 15, 20, 60, 65, 70)

    assert not watch.has_lasted(PERIOD, NOON + 79 * SECOND)
    assert watch.has_lasted(PERIOD, NOON + 80 * SECOND)


def test_a_process_without_a_recent_heartbeat_declares_no_worker_lost() -> None:
    watch = beaten(0, 5, 10, 15, 20, 25)

    assert not watch.has_lasted(PERIOD, NOON + 46 * SECOND)
