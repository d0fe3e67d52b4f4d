"""`app.verify`: a busy history is clean, and each violation is found with its ids."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from tests.support.edited_history import HOUR, NOON, EditedHistory, add_server
from tests.support.kept_rows import DIALECTS, KeptRows, module_database

from trax import Retry, Trax, cron
from trax.inspect import history_reader
from trax.inspect.verify import verify
from trax.records.verification import FindingKind
from trax.store import history
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from sqlalchemy import Connection


AS_INTERVAL = {"schedule_type": "interval", "interval_seconds": 3_600, "cron_expression": None}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=DIALECTS)
async def whole_past(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[EditedHistory]:
    """Successes, failures, retries, dead letters, a requeue, keys and schedules, over half a day."""
    with module_database(request, tmp_path_factory, request.param) as url:
        app = Trax(url, max_active_jobs=4)

        @app.train(group="etl")
        def work(number: int) -> int:
            return number

        @app.train(retry=Retry(max_retries=2, delay=timedelta(minutes=1)))
        def fail(number: int) -> None:
            raise RuntimeError(f"number {number}")

        app.group("etl", max_active_jobs=2)
        app.schedule(work, "hourly", 1, cron("0 * * * *"))
        app.schedule(work, "often", 2, cron("*/10 * * * *"))
        async with Harness(app, now=NOON) as harness:
            add_server(app, harness)  # it records the global limit
            await app.queue_many(work, range(9))
            await app.queue(work, 10, unique="once")
            await app.queue(fail, 11)
            for _ in range(15):
                await harness.advance(minutes=10)
                await harness.run_until_idle()
            await app.dead_letters.requeue([letter.id for letter in await app.dead_letters.list()])
            await app.groups.update("etl", max_active_jobs=3)
            await app.queue(work, 12, unique="once")
            await harness.advance(minutes=10)
            await harness.run_until_idle()
            with KeptRows(url) as kept:
                yield EditedHistory(kept, app, harness)


@pytest.fixture
def past(whole_past: EditedHistory) -> EditedHistory:
    whole_past.restore()
    return whole_past


async def test_a_busy_history_is_clean(past: EditedHistory) -> None:
    found = await past.found()

    assert (found.findings, found.counts, found.undecided) == ((), {}, {})
    assert found.is_clean
    assert (found.runs, found.entries, found.dead_letters) == (
        len(past.rows("metadata")),
        len(past.rows("work_queue")),
        1,
    )
    assert (found.keys.runs, found.keys.most) == (2, 1)


def runs_at(past: EditedHistory, *moments: str) -> list[int]:
    """The runs of the group that were admitted at these times of the day, one each."""
    found = {f"{row.created_at:%H:%M}": row.id for row in past.rows("metadata") if row.group_id}
    return [found[moment] for moment in moments]


def clock(text: str) -> datetime:
    return datetime.fromisoformat(f"2027-03-01T{text}Z")


async def test_overlaps_are_listed_by_group_with_the_limit_of_that_moment(past: EditedHistory) -> None:
    [first] = runs_at(past, "13:10")
    past.edit("metadata", first, ended_at=clock("13:25"))

    [etl] = [group for group in (await past.found()).groups if group.group == "etl"]

    assert (etl.most, etl.at, etl.limit, etl.is_limit_known) == (2, clock("13:20"), 2, True)


async def test_an_admission_beyond_the_limit_of_its_group_is_found(past: EditedHistory) -> None:
    first, second, third = runs_at(past, "13:10", "13:20", "13:30")
    past.edit("metadata", first, ended_at=clock("13:35"))
    past.edit("metadata", second, ended_at=clock("13:35"))

    found = await past.found()

    [finding] = [each for each in found.findings if each.kind is FindingKind.LIMIT_EXCEEDED]
    assert finding.ids == (third,)
    assert "group 'etl' at 2027-03-01 13:30:00.000000Z while 2 runs were active" in finding.text
    assert [group.exceeded for group in found.groups if group.group == "etl"] == [1]


async def test_an_admission_beyond_the_global_limit_is_found(past: EditedHistory) -> None:
    *early, late = runs_at(past, "13:10", "13:20", "13:30", "13:40", "13:50")
    for run_id in early:
        past.edit("metadata", run_id, ended_at=clock("13:55"), group_id=None)

    assert await past.ids_of(FindingKind.LIMIT_EXCEEDED) == [(late,)]


async def test_a_limit_that_was_lowered_while_more_were_active_is_no_violation(past: EditedHistory) -> None:
    [run_id] = runs_at(past, "14:40")
    past.edit("metadata", run_id, state="in_progress", ended_at=None)
    await past.app.groups.update("etl", max_active_jobs=0)

    assert (await past.found()).counts == {}


async def test_an_admission_to_a_disabled_group_is_found(past: EditedHistory) -> None:
    await past.app.groups.update("etl", enabled=False)
    await past.harness.advance(minutes=10)
    [run_id] = runs_at(past, "14:30")
    past.edit(
        "metadata",
        run_id,
        created_at=past.harness.now,
        started_at=past.harness.now,
        ended_at=past.harness.now,
    )

    assert await past.kinds() == [(FindingKind.LIMIT_EXCEEDED, (run_id,))]


async def test_a_limit_before_the_first_record_of_it_is_not_known(past: EditedHistory) -> None:
    """The servers of an older version have recorded nothing; a program without its code knows no more."""
    [declared] = [row.id for row in past.rows("audit") if row.action == "settings.declare"]
    past.drop("audit", declared)
    first, second = runs_at(past, "13:10", "13:20")
    for run_id in (first, second):
        past.edit("metadata", run_id, ended_at=clock("13:55"))

    found = verify(past.store)

    [etl] = [group for group in found.groups if group.group == "etl"]
    assert FindingKind.LIMIT_EXCEEDED not in found.counts
    assert (etl.most, etl.is_limit_known, found.total.is_limit_known) == (3, False, False)
    assert found.total.unknown == found.total.admitted == found.undecided[FindingKind.LIMIT_EXCEEDED]
    assert any(note.startswith("limit exceeded: not decided in") for note in found.notes)
    assert 0 < etl.unknown < etl.admitted  # since the change of its limit it is known


async def test_two_runs_of_one_unique_key_at_once_are_found(past: EditedHistory) -> None:
    one, other = [row.metadata_id for row in past.rows("work_queue") if row.unique_key or row.former_key]
    past.edit("metadata", one, ended_at=past.harness.now + HOUR)

    found = await past.found()

    assert (FindingKind.KEY_OVERLAP, (other, one)) in [(each.kind, each.ids) for each in found.findings]
    assert (found.keys.most, found.keys.unique_key) == (2, "once")


async def test_an_entry_that_was_executed_again_after_it_completed_is_found(past: EditedHistory) -> None:
    [run_id] = runs_at(past, "13:10")
    again = past.repeat("metadata", run_id)
    [entry] = [row for row in past.rows("work_queue") if row.metadata_id == run_id]
    past.edit("work_queue", entry.id, metadata_id=again)

    assert await past.kinds() == [(FindingKind.EXECUTED_TWICE, (run_id, again))]


async def test_two_active_runs_of_one_entry_are_found(past: EditedHistory) -> None:
    [run_id] = runs_at(past, "14:40")
    past.edit("metadata", run_id, state="pending", started_at=None, ended_at=None)
    again = past.repeat("metadata", run_id)

    assert (FindingKind.EXECUTED_TWICE, (again, run_id)) in await past.kinds()


async def test_two_attempts_of_one_job_at_once_are_found(past: EditedHistory) -> None:
    [entry] = [row for row in past.rows("work_queue") if row.train == "fail" and row.dead_letter_id is None]
    first, second = [row for row in past.rows("metadata") if row.external_id == entry.external_id]
    past.edit("metadata", first.id, ended_at=second.created_at)  # at the same moment ends come first
    assert (await past.found()).counts == {}

    past.edit("metadata", first.id, ended_at=second.created_at + timedelta(seconds=1))

    [finding] = (await past.found()).findings
    assert (finding.kind, finding.ids) == (FindingKind.EXECUTED_TWICE, (second.id, first.id))
    assert finding.text.endswith(f"while run {first.id}, an attempt of the same job, was active")


async def test_each_dead_letter_is_counted_and_found_once(past: EditedHistory) -> None:
    [letter] = past.rows("dead_letter")
    [entry] = [row for row in past.rows("work_queue") if row.dead_letter_id == letter.id]
    past.repeat("work_queue", entry.id, external_id="a double", status="cancelled", unique_key=None)
    past.edit("dead_letter", letter.id, resolved_at=letter.dead_lettered_at - HOUR)

    for chunk in (1, 5_000):
        found = verify(past.store, chunk=chunk)

        assert found.dead_letters == 1
        assert found.counts[FindingKind.IMPOSSIBLE_STATE] == 1


async def test_more_scheduled_runs_of_a_manifest_than_it_may_have_are_found(past: EditedHistory) -> None:
    first, second = runs_at(past, "14:30", "14:40")
    for run_id in (first, second):
        past.edit("metadata", run_id, state="pending", started_at=None, ended_at=None, worker_id=None)

    assert await past.kinds() == [(FindingKind.TOO_MANY_INSTANCES, (second, first))]


async def test_a_dispatched_entry_without_its_run_is_found(past: EditedHistory) -> None:
    [run_id] = runs_at(past, "13:10")
    [entry] = [row.id for row in past.rows("work_queue") if row.metadata_id == run_id]
    past.drop("metadata", run_id)

    assert await past.kinds() == [(FindingKind.ENTRY_LOST, (entry,))]


async def test_records_deleted_by_the_cleanup_are_not_reported_missing(past: EditedHistory) -> None:
    await past.app.settings.update(
        metadata_cleanup_enabled=True,
        metadata_cleanup_retention=timedelta(hours=1),
        metadata_cleanup_trains=["work"],
    )
    before = len(past.rows("metadata"))

    await past.harness.cycle("metadata_cleanup")

    assert len(past.rows("metadata")) < before
    assert (await past.found()).counts == {}


async def test_a_run_that_no_living_worker_holds_is_found_if_a_server_was_there_to_notice(
    past: EditedHistory,
) -> None:
    [run_id] = runs_at(past, "14:40")
    past.edit("metadata", run_id, state="in_progress", ended_at=None, worker_id=4711)
    await past.harness.advance(minutes=11)

    undecided = await past.found()
    add_server(past.app, past.harness)

    assert (undecided.counts, undecided.undecided) == ({}, {FindingKind.RUN_LOST: 1})
    assert await past.kinds() == [(FindingKind.RUN_LOST, (run_id,))]


async def test_a_failure_without_a_retry_or_a_dead_letter_is_found(past: EditedHistory) -> None:
    [run_id] = runs_at(past, "13:10")
    [entry] = [row.id for row in past.rows("work_queue") if row.metadata_id == run_id]
    past.edit("work_queue", entry, manifest_id=None)
    past.edit("metadata", run_id, state="failed", failure_exception="ValueError", manifest_id=None)

    assert await past.kinds() == [(FindingKind.FAILURE_LOST, (run_id,))]

    past.drop("dead_letter", 1)  # the retention keeps it for 30 days
    assert len(await past.ids_of(FindingKind.FAILURE_LOST)) == 2
    await past.harness.advance(days=31)  # from now on nobody can tell
    undecided = (await past.found()).undecided
    assert undecided[FindingKind.FAILURE_LOST] == 2


async def test_a_requeued_dead_letter_without_an_entry_is_found(past: EditedHistory) -> None:
    [letter] = past.rows("dead_letter")
    [entry] = [row for row in past.rows("work_queue") if row.dead_letter_id == letter.id]
    past.edit("work_queue", entry.id, dead_letter_id=None)
    past.edit("dead_letter", letter.id, retry_metadata_id=None)

    assert await past.kinds() == [(FindingKind.REQUEUE_LOST, (letter.id,))]

    [failed] = [row for row in past.rows("work_queue") if row.metadata_id == letter.last_metadata_id]
    past.drop("metadata", letter.last_metadata_id)  # as the cleanup does: then nobody can tell
    past.drop("work_queue", failed.id)
    found = await past.found()
    assert (found.counts, found.undecided) == ({}, {FindingKind.REQUEUE_LOST: 1})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"started_at": clock("13:09")}, "before it was created"),
        ({"ended_at": clock("13:09")}, "before it started"),
        ({"state": "pending", "ended_at": None}, "is pending but has started"),
        ({"failure_exception": "ValueError"}, "completed, but has a failure"),
        ({"attempt": 2}, "is attempt 2 of entry"),
    ],
)
async def test_a_run_in_an_impossible_state_is_found(
    past: EditedHistory, values: dict[str, Any], words: str
) -> None:
    [run_id] = runs_at(past, "13:10")
    past.edit("metadata", run_id, **values)

    texts = [each.text for each in (await past.found()).findings if each.ids == (run_id,)]

    assert [text for text in texts if text.startswith(f"run {run_id} ") and words in text]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"created_at": clock("13:11")}, "was dispatched before it was created"),
        ({"attempt": 3}, "is at attempt 3, but its run"),
        ({"metadata_id": 1}, "which belongs to another entry"),
        ({"status": "queued", "dispatched_at": None}, "is queued but points to run"),
    ],
)
async def test_an_entry_in_an_impossible_state_is_found(
    past: EditedHistory, values: dict[str, Any], words: str
) -> None:
    [run_id] = runs_at(past, "13:10")
    [entry] = [row.id for row in past.rows("work_queue") if row.metadata_id == run_id]
    past.edit("work_queue", entry, **values)

    found = [each for each in (await past.found()).findings if each.noun == "entry"]

    assert [(each.kind, each.ids) for each in found] == [(FindingKind.IMPOSSIBLE_STATE, (entry,))]
    assert words in found[0].text


async def test_records_that_point_to_nothing_are_found(past: EditedHistory) -> None:
    [run_id] = runs_at(past, "13:10")
    [entry] = [row.id for row in past.rows("work_queue") if row.metadata_id == run_id]
    past.edit("work_queue", entry, manifest_id=4711)
    waiting = await past.app.queue("work", 1)
    past.edit("work_queue", waiting.id, group_id=4711)
    [letter] = past.rows("dead_letter")
    past.edit("dead_letter", letter.id, status="awaiting_intervention", resolved_at=None, group_id=4711)
    line = past.add_line(run_id)
    past.edit("log", line, metadata_id=4711)

    found = await past.found()

    assert {(each.kind, each.noun, each.ids) for each in found.findings} == {
        (FindingKind.RECORD_MISMATCH, "run", (run_id,)),
        (FindingKind.ORPHAN, "entry", (entry,)),
        (FindingKind.ORPHAN, "entry", (waiting.id,)),
        (FindingKind.ORPHAN, "dead letter", (letter.id,)),
        (FindingKind.ORPHAN, "log line", (line,)),
    }
    assert found.log_lines == 1


@pytest.mark.parametrize("schedule", [{}, AS_INTERVAL], ids=["cron", "interval"])
async def test_an_occurrence_that_was_not_queued_is_found(
    past: EditedHistory, schedule: dict[str, Any]
) -> None:
    [entry] = [
        row
        for row in past.rows("work_queue")
        if row.scheduled_for == clock("14:00") and _is(past, row, "hourly")
    ]
    past.drop("work_queue", entry.id)
    past.drop("metadata", entry.metadata_id)
    if schedule:
        past.edit("manifest", entry.manifest_id, **schedule)

    assert await past.kinds() == [(FindingKind.OCCURRENCE_MISSED, (entry.manifest_id,))]


async def test_a_gap_with_a_possible_reason_is_not_decided(past: EditedHistory) -> None:
    [entry] = [
        row
        for row in past.rows("work_queue")
        if row.scheduled_for == clock("14:00") and _is(past, row, "hourly")
    ]
    past.drop("work_queue", entry.id)
    past.drop("metadata", entry.metadata_id)
    past.edit("manifest", entry.manifest_id, updated_at=clock("14:10"))

    found = await past.found()

    assert (found.counts, found.undecided) == ({}, {FindingKind.OCCURRENCE_MISSED: 1})


def _is(past: EditedHistory, entry: Any, external_id: str) -> bool:
    return any(
        row.id == entry.manifest_id and row.external_id == external_id for row in past.rows("manifest")
    )


async def test_only_the_given_period_is_checked(past: EditedHistory) -> None:
    [run_id] = runs_at(past, "13:10")
    past.edit("metadata", run_id, failure_exception="ValueError")

    before = await past.found(until=clock("13:05"))
    during = await past.found(since=clock("13:05"), until=clock("13:15"))
    after = await past.found(since=past.harness.now - clock("13:15"))

    assert [found.is_clean for found in (before, during, after)] == [True, False, True]
    assert during.runs < 10 < before.runs + after.runs


async def test_runs_from_before_the_period_count_against_the_limits(past: EditedHistory) -> None:
    first, second, third = runs_at(past, "13:10", "13:20", "13:30")
    for run_id in (first, second):
        past.edit("metadata", run_id, ended_at=clock("13:35"))

    found = await past.found(since=clock("13:25"))

    assert {each.kind: each.ids for each in found.findings} == {
        FindingKind.LIMIT_EXCEEDED: (third,),
        FindingKind.TOO_MANY_INSTANCES: (third, first, second),
    }


async def test_verify_reads_in_chunks_and_keeps_only_active_runs(
    past: EditedHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same result whatever the size of a chunk, and no read returns more rows than that."""
    sizes: list[int] = []

    def counting(load: Any) -> Any:
        def loaded(connection: Connection, **options: Any) -> Any:
            rows = load(connection, **options)
            sizes.append(len(rows))
            return rows

        return loaded

    whole = verify(past.store)
    for name in ("load_runs", "load_entries", "load_letters"):
        monkeypatch.setattr(history, name, counting(getattr(history, name)))
    progress: list[tuple[int, int]] = []

    by_chunks = verify(past.store, chunk=3, on_progress=lambda done, of: progress.append((done, of)))

    assert by_chunks == whole
    assert max(sizes) == 3
    assert sum(sizes) == whole.runs + whole.entries + whole.dead_letters
    assert progress == sorted(progress)
    assert progress[-1][0] == progress[-1][1]


async def test_the_findings_that_are_listed_are_bounded_but_all_are_counted(
    past: EditedHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_reader, "MAX_FINDINGS", 2)
    for run_id in runs_at(past, "13:10", "13:20", "13:30"):
        past.edit("metadata", run_id, failure_exception="ValueError")

    found = await past.found()

    assert (len(found.findings), found.counts) == (2, {FindingKind.IMPOSSIBLE_STATE: 3})
