"""A row that plain SQL makes ready is found by the next visit to the gate, or a second later."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text
from tests.store.test_gate_memory import LONG_AGO, PUT_BACK, Dispatcher, remembered, write_as_a_replica

from trax.store import gate_memory
from trax.store.queue import parking, requeue

if TYPE_CHECKING:
    from collections.abc import Generator

COLUMNS = "created_at, ready, external_id, train, origin, status"
VALUES = "now() - interval '1 hour', true, 'mine', 'work', 'queue', 'queued'"
QUICK_AND_CAREFUL = pytest.mark.parametrize("is_quick", [True, False], ids=["quick", "careful"])


@pytest.fixture
def driver(postgres_url: str) -> Generator[Dispatcher]:
    made = Dispatcher(postgres_url)
    yield made
    made.close()


def by_hand(driver: Dispatcher, statement: str, **parameters: int) -> None:
    with driver.transaction() as other:
        other.execute(text(statement), parameters)


def next_admitted(driver: Dispatcher, count: int, *, is_quick: bool) -> list[int]:
    """The next visits are quick, or all decide."""
    if not is_quick:
        driver.memory.forbid_quick()
    assert (driver.memory.quick_terms is not None) == is_quick
    return driver.admit(count)


@QUICK_AND_CAREFUL
def test_a_dispatched_entry_whose_status_is_edited_is_found(driver: Dispatcher, *, is_quick: bool) -> None:
    entries = remembered(driver)

    by_hand(driver, PUT_BACK, id=entries[1])

    assert next_admitted(driver, 2, is_quick=is_quick) == [entries[1], entries[3]]


@QUICK_AND_CAREFUL
def test_a_cancelled_entry_whose_status_is_edited_is_found(driver: Dispatcher, *, is_quick: bool) -> None:
    (first,) = driver.enqueue(ago=LONG_AGO)
    driver.store.run(requeue.withdraw, [first])
    entries = remembered(driver)

    by_hand(driver, "UPDATE trax.work_queue SET status = 'queued' WHERE id = :id", id=first)

    assert next_admitted(driver, 2, is_quick=is_quick) == [first, entries[3]]


@pytest.mark.parametrize(
    "change",
    [
        "ready = true, scheduled_at = now() - interval '1 s'",
        "scheduled_at = NULL, ready = true",
    ],
)
@QUICK_AND_CAREFUL
def test_a_delayed_entry_that_is_made_ready_is_found(
    driver: Dispatcher, change: str, *, is_quick: bool
) -> None:
    (first,) = driver.enqueue(ago=LONG_AGO, scheduled_at=driver.now + timedelta(hours=1))
    entries = remembered(driver)

    by_hand(driver, f"UPDATE trax.work_queue SET {change} WHERE id = :id", id=first)  # noqa: S608

    assert next_admitted(driver, 2, is_quick=is_quick) == [first, entries[3]]


def test_a_delayed_entry_whose_time_is_edited_is_found(driver: Dispatcher) -> None:
    (first,) = driver.enqueue(ago=LONG_AGO, scheduled_at=driver.now + timedelta(hours=1))
    entries = remembered(driver)

    by_hand(driver, "UPDATE trax.work_queue SET scheduled_at = now() WHERE id = :id", id=first)

    assert driver.admit(2) == [first, entries[3]]


def test_an_entry_that_is_unparked_by_hand_is_found(driver: Dispatcher) -> None:
    (first,) = driver.enqueue(ago=LONG_AGO)
    driver.store.run(parking.park, {first: "work"}, now=driver.now)
    entries = remembered(driver)

    by_hand(
        driver,
        "UPDATE trax.work_queue SET ready = true, parked = NULL, parked_at = NULL WHERE id = :id",
        id=first,
    )

    assert driver.admit(2) == [first, entries[3]]


@pytest.mark.parametrize(
    "change", ["priority = 9", "group_priority = 9", "created_at = created_at - interval '1 h'"]
)
@QUICK_AND_CAREFUL
def test_an_entry_that_is_moved_up_is_found(driver: Dispatcher, change: str, *, is_quick: bool) -> None:
    entries = remembered(driver)

    by_hand(driver, f"UPDATE trax.work_queue SET {change} WHERE id = :id", id=entries[8])  # noqa: S608

    assert next_admitted(driver, 2, is_quick=is_quick) == [entries[8], entries[3]]


@QUICK_AND_CAREFUL
def test_an_entry_that_is_inserted_before_all_others_is_found(driver: Dispatcher, *, is_quick: bool) -> None:
    entries = remembered(driver)

    by_hand(driver, f"INSERT INTO trax.work_queue ({COLUMNS}) VALUES ({VALUES})")  # noqa: S608

    mine, *others = next_admitted(driver, 2, is_quick=is_quick)
    assert mine not in entries
    assert others == [entries[3]]


@pytest.mark.parametrize("written_in", ["NULL", "'3'"])
@QUICK_AND_CAREFUL
def test_an_entry_that_names_another_transaction_is_found_after_a_second(
    driver: Dispatcher, written_in: str, *, is_quick: bool
) -> None:
    """As a dump does that is restored beside running servers."""
    entries = remembered(driver)

    by_hand(
        driver,
        f"INSERT INTO trax.work_queue ({COLUMNS}, written_in) VALUES ({VALUES}, {written_in})",  # noqa: S608
    )

    assert next_admitted(driver, 1, is_quick=is_quick) == entries[3:4], "it is behind the bound"
    driver.seconds += gate_memory.BOUND_SECONDS
    (mine,) = next_admitted(driver, 1, is_quick=is_quick)
    assert mine not in entries


@QUICK_AND_CAREFUL
def test_a_row_that_replication_makes_ready_is_found_after_a_second(
    driver: Dispatcher, *, is_quick: bool
) -> None:
    entries = remembered(driver)

    write_as_a_replica(driver, PUT_BACK, id=entries[0])

    assert next_admitted(driver, 1, is_quick=is_quick) == entries[3:4], "it is behind the bound"
    driver.seconds += gate_memory.BOUND_SECONDS
    assert next_admitted(driver, 2, is_quick=is_quick) == [entries[0], entries[4]]


def test_visits_do_not_prolong_a_bound(driver: Dispatcher) -> None:
    entries = remembered(driver)
    write_as_a_replica(driver, PUT_BACK, id=entries[0])

    driver.seconds += 0.75 * gate_memory.BOUND_SECONDS
    assert driver.admit(1) == entries[3:4]
    driver.seconds += 0.75 * gate_memory.BOUND_SECONDS

    assert driver.admit(2) == [entries[0], entries[4]]


def test_a_bound_is_kept_longer_where_reading_from_the_start_is_slow() -> None:
    seconds = 0.0
    memory = gate_memory.GateMemory(lambda: seconds)
    bounds = gate_memory.GateBounds(gate_memory.START_BOUND)

    memory.take()
    seconds = 5.0
    memory.remember(bounds)

    seconds += 5 / gate_memory.WHOLE_READ_SHARE - 0.1
    assert memory.take() == bounds
    memory.remember(bounds)
    seconds += 0.1
    assert memory.take() == gate_memory.GateBounds()


def test_a_user_who_may_only_edit_the_priority_may_do_so(driver: Dispatcher) -> None:
    entries = remembered(driver)

    with driver.transaction() as other:
        other.execute(text("CREATE ROLE operator"))
        other.execute(text("GRANT USAGE ON SCHEMA trax TO operator"))
        other.execute(text("GRANT SELECT, UPDATE (priority) ON trax.work_queue TO operator"))
        other.execute(text("SET LOCAL ROLE operator"))
        other.execute(text("UPDATE trax.work_queue SET priority = 9 WHERE id = :id"), {"id": entries[8]})
        other.execute(text("RESET ROLE"))
        other.execute(text("DROP OWNED BY operator"))
        other.execute(text("DROP ROLE operator"))

    assert driver.admit(1) == entries[8:9]


def test_a_statement_of_trax_writes_an_entry_once(driver: Dispatcher) -> None:
    """The trigger is for statements by hand: each of ours names its transaction."""
    (delayed,) = driver.enqueue(ago=LONG_AGO, scheduled_at=driver.now + timedelta(hours=1))
    entries = remembered(driver)
    by_hand(driver, "UPDATE trax.work_queue SET scheduled_at = now() WHERE id = :id", id=delayed)
    by_hand(
        driver,
        "CREATE OR REPLACE FUNCTION trax.set_written_in() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN RAISE 'the trigger ran'; END$$",
    )

    driver.store.run(parking.park, {entries[4]: "work"}, now=driver.now)
    driver.store.run(parking.unpark, ["work"], limit=10)
    driver.store.run(requeue.put_back, {driver.run_of(entries[0]): None}, attempts=0)
    driver.group("some")
    driver.enqueue(group_id=1)
    driver.group("some", priority=9)

    assert len(driver.admit(20)) == 10
