"""Pages of long tables: in both directions, bounded, and honest about how far they looked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import insert
from tests.support.databases import IN_MEMORY_TOO

from trax.records import LogLevel, QueueStatus, State
from trax.records.listing import Count
from trax.records.nouns import EntryFilter, LogFilter, ManifestFilter, RunFilter
from trax.store import groups as groups_store
from trax.store import listing
from trax.store.manifests import manifest_rows
from trax.store.queue import queue_lists
from trax.store.runs import run_lists, run_log
from trax.store.schema import tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from trax.records.listing import RecordPage
    from trax.store import Store

pytestmark = IN_MEMORY_TOO

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)


def row(number: int, **columns: Any) -> dict[str, Any]:
    """A run made in this minute after noon."""
    at = NOON + timedelta(minutes=number)
    ended = {"started_at": at, "ended_at": at}
    plain = {"external_id": f"{number:032x}", "train": "job", "state": "completed", "created_at": at}
    return plain | ended | {"group_id": None, "parent_id": None} | columns


def write(store: Store, table: str, rows: Sequence[dict[str, Any]]) -> None:
    store.run(lambda connection: connection.execute(insert(getattr(tables(connection), table)), list(rows)))


def runs(
    store: Store, *, before: int | None = None, after: int | None = None, limit: int = 3, **wanted: Any
) -> Any:
    return store.read(run_lists.page, RunFilter(**wanted), before=before, after=after, limit=limit)


def ids(page: RecordPage[Any]) -> list[int]:
    return [item.id for item in page.items]


def test_pages_lead_down_and_up_again(store: Store) -> None:
    write(store, "metadata", [row(number) for number in range(1, 9)])

    first = runs(store)
    second = runs(store, before=first.older)
    last = runs(store, before=second.older)

    assert [ids(page) for page in (first, second, last)] == [[8, 7, 6], [5, 4, 3], [2, 1]]
    assert (first.newer, last.older) == (None, None)
    assert ids(runs(store, after=last.newer)) == [5, 4, 3]
    again = runs(store, after=second.newer)
    assert (ids(again), again.newer, again.older) == ([8, 7, 6], None, 6)


def test_a_page_that_is_just_full_is_the_last(store: Store) -> None:
    write(store, "metadata", [row(number) for number in range(1, 4)])

    assert (ids(runs(store)), runs(store).older) == ([3, 2, 1], None)


def test_runs_are_narrowed_in_every_way(store: Store, now: datetime) -> None:
    group = store.run(groups_store.get_or_create, ["etl"], now=now)["etl"]
    write(
        store,
        "metadata",
        [
            row(1, train="trax.job_dispatcher"),
            row(2, state="failed"),
            row(3, state="pending", started_at=None, ended_at=None),
            row(4, train="rare", group_id=group.id),
            row(5, parent_id=2),
        ],
    )

    def found(**wanted: Any) -> list[int]:
        return ids(runs(store, limit=10, **wanted))

    assert found() == [5, 4, 3, 2]
    assert found(admin=True) == [5, 4, 3, 2, 1]
    assert found(train="trax.job_dispatcher") == [1]
    assert found(state=State.FAILED) == [2]
    assert found(state=State.PENDING) == [3]
    assert found(state=State.COMPLETED) == [5, 4]
    assert found(train="rare") == found(group="etl") == [4]
    assert found(train="job") == [5, 3, 2]
    assert found(parent_id=2) == [5]
    assert found(group="nobody") == found(manifest="nobody") == found(train="nobody") == []
    assert found(since=NOON + timedelta(minutes=4)) == [5, 4]
    assert found(until=NOON + timedelta(minutes=4)) == [3, 2]
    assert found(since=NOON + timedelta(minutes=3), until=NOON + timedelta(minutes=5)) == [4, 3]
    assert found(external_id=f"{4:032x}") == [4]
    assert found(external_id="0" * 20) == [5, 4, 3, 2]


def test_a_run_is_found_by_the_beginning_of_its_entrys_name(store: Store) -> None:
    name = "0190aa" + "0" * 26
    write(store, "metadata", [row(1), row(2, external_id=name)])
    write(
        store,
        "work_queue",
        [entry(1, external_id=name, status="dispatched", metadata_id=2, dispatched_at=NOON)],
    )

    assert ids(runs(store, external_id="0190aa")) == [2]
    assert ids(runs(store, external_id="0190ab")) == []


def test_a_search_without_an_index_stops_and_can_be_continued(
    store: Store, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "WINDOW", 4)
    group = store.run(groups_store.get_or_create, ["etl"], now=now)["etl"]
    its_own = {2: group.id, 9: group.id}
    write(store, "metadata", [row(number, group_id=its_own.get(number)) for number in range(1, 11)])

    first = runs(store, group="etl")
    second = runs(store, group="etl", before=first.older)
    last = runs(store, group="etl", before=second.older)

    assert (ids(first), first.older, first.complete) == ([9], 7, False)
    assert (ids(second), second.older, second.complete) == ([], 3, False)
    assert (ids(last), last.older, last.complete) == ([2], None, True)


def test_counts_are_exact_where_that_is_cheap_and_estimates_elsewhere(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (listing, listing):
        monkeypatch.setattr(module, "COUNT_LIMIT", 50)
    write(store, "metadata", [row(number, train=("job", "other")[number % 2]) for number in range(200)])
    write(store, "metadata", [row(number, state="failed") for number in range(7)])
    analyze(store)

    def count(**wanted: Any) -> Count:
        return store.read(run_lists.count, RunFilter(**wanted))

    assert count(state=State.FAILED) == count(state=State.FAILED, admin=True) == Count(7)
    assert count(state=State.CANCELLED) == count(manifest="nobody") == Count(0)
    about = count()
    assert (about.exact, about.number) == (False, 207)
    assert str(about) == "about 207"
    assert count(since=NOON + timedelta(minutes=170), until=NOON + timedelta(minutes=180)) == Count(10)


def test_a_count_without_an_index_is_exact_up_to_the_bound(
    store: Store, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (listing, listing):
        monkeypatch.setattr(module, "COUNT_LIMIT", 50)
    monkeypatch.setattr(listing, "WINDOW", 20)
    monkeypatch.setattr(listing, "SPARSE_WINDOW", 5)
    groups = store.run(groups_store.get_or_create, ["few", "fifty", "many"], now=now)
    of_group = ["few"] * 3 + ["fifty"] * 50 + ["many"] * 147  # the newest last: they hide the others
    rows = [
        row(number, group_id=groups[name].id, state=("completed", "failed")[number % 2])
        for number, name in enumerate(of_group)
    ]
    write(store, "metadata", rows)
    write(store, "metadata", [row(number, train="trax.metadata_cleanup") for number in range(200, 300)])
    analyze(store)

    def count(**wanted: Any) -> Count:
        return store.read(run_lists.count, RunFilter(**wanted))

    assert count(group="few") == Count(3)
    assert count(group="fifty") == Count(50)
    assert count(group="fifty", state=State.FAILED) == Count(25)
    beyond = count(group="many")
    assert (beyond.exact, beyond.number > 50) == (False, True)
    assert count(since=NOON, until=NOON + timedelta(minutes=40)) == Count(40)  # and none that administers
    quick = store.read(run_lists.count, RunFilter(group="few"), quick=True)
    assert (quick.exact, quick.number) == (False, 0)


def analyze(store: Store) -> None:
    """What PostgreSQL does by itself from time to time."""
    store.run(lambda connection: connection.exec_driver_sql("ANALYZE"))


def entry(number: int, **columns: Any) -> dict[str, Any]:
    plain = {
        "external_id": f"q{number}",
        "train": "job",
        "status": "queued",
        "origin": "queue",
        "ready": True,
    }
    return (
        plain | {"created_at": NOON, "metadata_id": None, "dispatched_at": None, "group_id": None} | columns
    )


def test_entries_are_narrowed_and_counted(store: Store, now: datetime) -> None:
    group = store.run(groups_store.get_or_create, ["etl"], now=now)["etl"]
    write(
        store,
        "work_queue",
        [
            entry(1, status="dispatched", dispatched_at=NOON),
            entry(2, group_id=group.id),
            entry(3, train="other"),
            entry(4, status="cancelled"),
        ],
    )

    def found(**wanted: Any) -> list[int]:
        wanted_entries = EntryFilter(**wanted)
        page = store.read(queue_lists.page, wanted_entries, before=None, after=None, limit=10)
        assert store.read(queue_lists.count, wanted_entries) == Count(len(page.items))
        return ids(page)

    assert found() == [4, 3, 2, 1]
    assert found(status=QueueStatus.QUEUED) == [3, 2]
    assert found(status=QueueStatus.DISPATCHED) == [1]
    assert found(status=QueueStatus.CANCELLED) == [4]
    assert found(group="etl") == [2]
    assert found(train="other", status=QueueStatus.QUEUED) == [3]
    assert found(manifest="nobody") == []


def test_a_long_queue_is_estimated(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "COUNT_LIMIT", 50)
    monkeypatch.setattr(listing, "PROBES", 100)
    done = {"status": "dispatched", "dispatched_at": NOON}
    write(store, "work_queue", [entry(number, **(done if number % 2 else {})) for number in range(400)])
    analyze(store)

    about = store.read(listing.count_queued)

    assert not about.exact
    assert about.number == pytest.approx(200, rel=0.15)


def test_log_lines_are_searched_by_level_and_text(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "WINDOW", 4)
    write(store, "metadata", [row(1), row(2)])
    levels = ("error", "information", "warning", "information", "critical", "information")
    lines = [
        {
            "metadata_id": 1 + number % 2,
            "created_at": NOON,
            "level": level,
            "logger": "jobs",
            "message": f"50%_{number} of it",
        }
        for number, level in enumerate(levels)
    ]
    write(store, "log", lines)

    def found(**wanted: Any) -> Any:
        return store.read(
            run_log.page, LogFilter(**wanted), before=wanted.pop("before", None), after=None, limit=3
        )

    assert ids(found()) == [6, 5, 4]
    loud = found(level=LogLevel.WARNING)
    assert (ids(loud), loud.complete, loud.older) == ([5, 3], False, 3)
    assert ids(found(text="50%_4 OF")) == [5]
    assert ids(found(text="5__4")) == []
    assert ids(found(metadata_id=1)) == [5, 3, 1]


def manifest(number: int, group_id: int, **columns: Any) -> dict[str, Any]:
    plain = {"external_id": f"m{number}", "train": "job", "group_id": group_id, "origin": "runtime"}
    timing = {"schedule_type": "on_demand", "misfire_policy": "fire_once_now", "max_retries": 3}
    made = {"created_at": NOON, "updated_at": NOON, "enabled": True, "depends_on_id": None}
    return plain | timing | made | columns


def test_manifests_are_paged_by_their_names(store: Store, now: datetime) -> None:
    groups = store.run(groups_store.get_or_create, ["etl", "mail"], now=now)
    etl, mail = groups["etl"].id, groups["mail"].id
    write(
        store,
        "manifest",
        [
            manifest(1, etl),
            manifest(2, etl, enabled=False),
            manifest(3, mail, depends_on_id=1),
            manifest(4, mail, train="other"),
            manifest(5, etl, depends_on_id=1),
        ],
    )

    def page(*, before: str | None = None, after: str | None = None, limit: int = 10, **wanted: Any) -> Any:
        return store.read(
            manifest_rows.page, ManifestFilter(**wanted), before=before, after=after, limit=limit
        )

    def names(found: Any) -> list[str]:
        return [item.external_id for item in found.items]

    assert names(page()) == ["m1", "m2", "m3", "m4", "m5"]
    assert names(page(group="etl")) == ["m1", "m2", "m5"]
    assert names(page(enabled=False)) == ["m2"]
    assert names(page(depends_on="m1")) == ["m3", "m5"]
    assert names(page(text="M4")) == names(page(train="other")) == ["m4"]
    first = page(limit=2)
    second = page(after=first.newer, limit=2)
    last = page(after=second.newer, limit=2)
    assert [names(one) for one in (first, second, last)] == [["m1", "m2"], ["m3", "m4"], ["m5"]]
    assert (first.older, last.newer) == (None, None)
    assert names(page(before=last.older, limit=2)) == ["m3", "m4"]
    assert store.read(manifest_rows.count, ManifestFilter(group="etl")) == Count(3)


def test_a_moment_is_found_among_ids_with_gaps(store: Store) -> None:
    write(store, "metadata", [row(number, id=number * 7) for number in range(1, 50)])

    def first_from(connection: Connection, minute: int) -> int:
        return listing.id_at(connection, tables(connection).metadata, NOON + timedelta(minutes=minute))

    for minute in range(1, 50):
        assert 7 * (minute - 1) < store.read(first_from, minute) <= 7 * minute
    assert store.read(first_from, 0) <= 7
    assert store.read(first_from, 60) > 7 * 49
