"""`app.verify` names each corruption that is planted by SQL into a history; the untouched one is clean."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from tests.support.edited_history import HOUR, NOON, EditedHistory, add_server
from tests.support.kept_rows import DIALECTS, KeptRows, module_database

from trax import Retry, Snooze, Trax, cron
from trax.inspect.verify import verify
from trax.records.verification import FindingKind
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    Plant = Callable[[EditedHistory], tuple[int, ...]]

MINUTE = timedelta(minutes=1)
FAR = 10**9
TWICE = FindingKind.EXECUTED_TWICE
MISMATCH = FindingKind.RECORD_MISMATCH
IMPOSSIBLE = FindingKind.IMPOSSIBLE_STATE
OUTSIDE = FindingKind.OUTSIDE_LIMITS

module_loop = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=DIALECTS)
async def whole_past(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[EditedHistory]:
    """Hours of schedules, batches, retries, snoozes, exempt runs and dead letters, open and requeued."""
    with module_database(request, tmp_path_factory, request.param) as url:
        app = Trax(url, max_active_jobs=50)
        declare(app)
        async with Harness(app, now=NOON) as harness:
            add_server(app, harness)
            await app.queue_many("work", range(8))
            await app.queue("fail", 1)
            await app.queue("nap", 2)
            await app.queue("free", 3)
            for _ in range(12):
                await harness.advance(minutes=10)
                await harness.run_until_idle()
            letters = await app.dead_letters.list()
            await app.dead_letters.requeue([letter.id for letter in letters if letter.manifest is None])
            for _ in range(6):
                await harness.advance(minutes=10)
                await harness.run_until_idle()
            await app.queue_many("step", range(6))
            for _ in range(6):
                await harness.cycle("job_dispatcher")
                await harness.work()
                await harness.advance(minutes=1)
            await app.queue("work", 4, delay=HOUR)
            with KeptRows(url) as kept:
                yield EditedHistory(kept, app, harness)


def declare(app: Trax) -> None:
    @app.train(group="etl")
    def work(number: int) -> int:
        return number

    @app.train(retry=Retry(max_retries=3, delay=MINUTE))
    def fail(number: int) -> None:
        raise RuntimeError(f"number {number}")

    @app.train(group="narrow")
    def step(number: int) -> None: ...

    napped: list[int] = []

    @app.train
    def nap(number: int) -> None:
        napped.append(number)
        if len(napped) == 1:
            raise Snooze(MINUTE, "later")

    @app.train(exclude_from_max_active_jobs=True)
    def free(number: int) -> None: ...

    app.group("narrow", max_active_jobs=1)
    app.group("etl", max_active_jobs=2, priority=7)
    app.schedule(work, "often", 5, cron("*/10 * * * *"))
    app.schedule(fail, "failing", 6, cron("0 14 * * *"), max_retries=2)


@pytest.fixture
def past(whole_past: EditedHistory) -> EditedHistory:
    whole_past.restore()
    return whole_past


@module_loop
async def test_the_untouched_history_is_clean(past: EditedHistory) -> None:
    found = await past.found()

    assert (found.findings, found.undecided, found.notes) == ((), {}, ())
    assert {row.state for row in past.rows("metadata")} == {"completed", "failed", "cancelled"}
    assert {row.status for row in past.rows("dead_letter")} == {"awaiting_intervention", "retried"}


def completed(past: EditedHistory, train: str = "work", *, place: int = 0) -> Any:
    """A completed run of a train without a manifest."""
    runs = [row for row in past.rows("metadata") if row.train == train and row.state == "completed"]
    return [run for run in runs if run.manifest_id is None][place]


def scheduled(past: EditedHistory, *, place: int = 3) -> Any:
    """A completed run of the schedule that runs often."""
    runs = [row for row in past.rows("metadata") if row.manifest_id and row.state == "completed"]
    return runs[place]


def attempts(past: EditedHistory) -> list[Any]:
    """The first job that failed: its runs in order."""
    runs = [row for row in past.rows("metadata") if row.train == "fail" and row.manifest_id is None]
    return [run for run in runs if run.entry_id == runs[0].entry_id]


def napping(past: EditedHistory) -> Any:
    """A run that was snoozed."""
    return next(row for row in past.rows("metadata") if row.failure_exception == "Snooze")


def waiting(past: EditedHistory) -> Any:
    """An entry in the queue."""
    return next(row for row in past.rows("work_queue") if row.status == "queued")


def letter(past: EditedHistory, status: str) -> Any:
    return next(row for row in past.rows("dead_letter") if row.status == status)


def plant_interruption(past: EditedHistory, exception: str) -> tuple[int, ...]:
    run = completed(past)
    values = {"state": "cancelled", "failure_exception": exception, "failure_reason": "it stops"}
    past.edit("metadata", run.id, **values, output=None)
    return (run.id,)


def plant_interruption_before_start(past: EditedHistory) -> tuple[int, ...]:
    ids = plant_interruption(past, "Interrupted")
    past.edit("metadata", ids[0], started_at=None)
    return ids


def plant_duplicate_entry(past: EditedHistory) -> tuple[int, ...]:
    run = completed(past)
    again = past.repeat("work_queue", run.entry_id, unique_key=None)
    return (run.entry_id, again)


def plant_in_run(past: EditedHistory, **values: Any) -> tuple[int, ...]:
    run = completed(past)
    past.edit("metadata", run.id, **values)
    return (run.id,)


def plant_in_scheduled_run(past: EditedHistory, **values: Any) -> tuple[int, ...]:
    run = scheduled(past)
    past.edit("metadata", run.id, **values)
    return (run.id,)


def plant_in_entry(past: EditedHistory, **values: Any) -> tuple[int, ...]:
    run = completed(past)
    past.edit("work_queue", run.entry_id, **values)
    return (run.entry_id,)


def plant_in_waiting(past: EditedHistory, **values: Any) -> tuple[int, ...]:
    entry = waiting(past)
    past.edit("work_queue", entry.id, **values)
    return (entry.id,)


def plant_priority(past: EditedHistory) -> tuple[int, ...]:
    """In a group whose priority has settled: after a change, PostgreSQL applies it again for a while."""
    entry = waiting(past)
    past.edit("manifest_group", entry.group_id, apply_priority_at=None)
    return plant_in_waiting(past, group_priority=3)


def plant_second_schedule(past: EditedHistory) -> tuple[int, ...]:
    past.lift_index("work_queue_one_scheduled_idx")
    entry = past.rows("work_queue")[scheduled(past).entry_id - 1]
    values = {"status": "queued", "metadata_id": None, "dispatched_at": None, "ready": True}
    first = past.repeat("work_queue", entry.id, **values, external_id="one")
    return (first, past.repeat("work_queue", entry.id, **values, external_id="two"))


def plant_cancelled(past: EditedHistory) -> tuple[int, ...]:
    return plant_in_run(past, state="cancelled", output=None)


def plant_cancelled_failure(past: EditedHistory) -> tuple[int, ...]:
    run = attempts(past)[0]
    past.edit("metadata", run.id, state="cancelled")
    return (run.id,)


def plant_attempts(past: EditedHistory) -> tuple[int, ...]:
    run = attempts(past)[-1]
    past.edit("metadata", run.id, attempt=4)
    past.edit("work_queue", run.entry_id, attempt=4)
    return (run.entry_id,)


def plant_attempts_of_manifest(past: EditedHistory) -> tuple[int, ...]:
    run = next(row for row in past.rows("metadata") if row.train == "fail" and row.manifest_id)
    past.edit("metadata", run.id, attempt=3)
    past.edit("work_queue", run.entry_id, attempt=3)
    return (run.entry_id,)


def plant_attempt_gap(past: EditedHistory) -> tuple[int, ...]:
    first, second, third = attempts(past)
    past.drop("metadata", second.id)
    return (third.id, first.id)


def plant_missing_first_attempt(past: EditedHistory) -> tuple[int, ...]:
    """Of a later job: those before it show that the cleanup has not come so far."""
    runs = [row for row in past.rows("metadata") if row.train == "fail" and row.manifest_id is None]
    first, second = [run for run in runs if run.entry_id == runs[-1].entry_id][:2]
    past.drop("metadata", first.id)
    return (second.id,)


def plant_repeated_attempt(past: EditedHistory) -> tuple[int, ...]:
    first, second, _ = attempts(past)
    past.edit("metadata", second.id, attempt=1)
    return (second.id, first.id)


def plant_counted_snooze(past: EditedHistory) -> tuple[int, ...]:
    run = napping(past)
    entry = past.rows("work_queue")[run.entry_id - 1]
    past.edit("metadata", entry.metadata_id, attempt=2)
    past.edit("work_queue", entry.id, attempt=2)
    return (entry.metadata_id, run.id)


def plant_second_run(past: EditedHistory) -> tuple[int, ...]:
    run = completed(past)
    again = past.repeat("metadata", run.id, state="pending", started_at=None, ended_at=None, worker_id=None)
    return (again, run.id)


def plant_run_of_queued_entry(past: EditedHistory) -> tuple[int, ...]:
    run = completed(past)
    past.edit("work_queue", run.entry_id, status="queued", metadata_id=None, dispatched_at=None, ready=True)
    return (run.id,)


def plant_lost_run(past: EditedHistory) -> tuple[int, ...]:
    run = completed(past)
    past.drop("metadata", run.id)
    return (run.entry_id,)


def plant_without_end(past: EditedHistory) -> tuple[int, ...]:
    past.lift_check("metadata", "ended_when_terminal")
    return plant_in_run(past, ended_at=None)


def plant_end_of_active(past: EditedHistory) -> tuple[int, ...]:
    past.lift_check("metadata", "ended_when_terminal")
    return plant_in_run(past, state="in_progress")


def plant_in_letter(past: EditedHistory, status: str, **values: Any) -> tuple[int, ...]:
    found = letter(past, status)
    past.edit("dead_letter", found.id, **values)
    return (found.id,)


def plant_letter_of_success(past: EditedHistory) -> tuple[int, ...]:
    return plant_in_letter(past, "retried", last_metadata_id=completed(past).id, train="work")


def plant_letter_of_retried(past: EditedHistory) -> tuple[int, ...]:
    return plant_in_letter(past, "retried", last_metadata_id=attempts(past)[0].id)


def plant_second_letter(past: EditedHistory) -> tuple[int, ...]:
    found = letter(past, "retried")
    return (found.id, past.repeat("dead_letter", found.id))


def plant_second_open_letter(past: EditedHistory) -> tuple[int, ...]:
    past.lift_index("dead_letter_one_awaiting_idx")
    found = next(row for row in past.rows("dead_letter") if row.manifest_id)
    return (found.id, past.repeat("dead_letter", found.id))


def plant_deleted_open_letter(past: EditedHistory) -> tuple[int, ...]:
    """The last dead letter of a job without a manifest: its ids have gaps anyway."""
    found = [row for row in past.rows("dead_letter") if row.manifest_id is None][-1]
    past.drop("dead_letter", found.id)
    return (found.last_metadata_id,)


def plant_overlap(past: EditedHistory) -> tuple[int, ...]:
    first, second = scheduled(past, place=3), scheduled(past, place=4)
    past.edit("metadata", first.id, ended_at=second.created_at + MINUTE)
    return (second.id, first.id)


def plant_inversion(past: EditedHistory) -> tuple[int, ...]:
    """The first job of a batch gets the run that the last one had, and is admitted last."""
    batch = [row for row in past.rows("metadata") if row.train == "step"]
    first, last = batch[0], batch[-1]
    entries = {row.id: row for row in past.rows("work_queue")}
    for run, other in ((first, last), (last, first)):
        own, its = entries[run.entry_id], entries[other.entry_id]
        past.edit("metadata", run.id, entry_id=its.id, external_id=its.external_id, input=its.input)
        past.edit("work_queue", own.id, metadata_id=other.id, dispatched_at=other.created_at)
    return (last.id,)


def plant_urgent_last(past: EditedHistory) -> tuple[int, ...]:
    last = [row for row in past.rows("metadata") if row.train == "step"][-1]
    past.edit("metadata", last.id, priority=31)
    past.edit("work_queue", last.entry_id, priority=31)
    return (last.id,)


def plant_silence(past: EditedHistory) -> tuple[int, ...]:
    manifest = next(row for row in past.rows("manifest") if row.external_id == "often")
    past.edit("manifest", manifest.id, next_due_at=None)
    return (manifest.id,)


def plant_exempt_batch(past: EditedHistory) -> tuple[int, ...]:
    runs = [row for row in past.rows("metadata") if row.train == "work" and row.manifest_id is None]
    for run in runs:
        past.edit("metadata", run.id, exempt=True)
    return (runs[-1].id,)


def plant_counted_exempt(past: EditedHistory) -> tuple[int, ...]:
    run = completed(past, "free")
    past.edit("metadata", run.id, exempt=False)
    return (run.id,)


def plant_removed_group(past: EditedHistory) -> tuple[int, ...]:
    [group] = [row for row in past.rows("manifest_group") if row.name == "etl"]
    past.drop("manifest_group", group.id)
    return (waiting(past).id,)


CORRUPTIONS: dict[str, tuple[FindingKind, Plant]] = {
    "interrupted, not put back": (
        FindingKind.INTERRUPTION_LOST,
        lambda past: plant_interruption(past, "Interrupted"),
    ),
    "snoozed, not put back": (FindingKind.INTERRUPTION_LOST, lambda past: plant_interruption(past, "Snooze")),
    "without a worker, not put back": (
        FindingKind.INTERRUPTION_LOST,
        lambda past: plant_interruption(past, "NoWorker"),
    ),
    "interrupted before its start, not put back": (
        FindingKind.INTERRUPTION_LOST,
        plant_interruption_before_start,
    ),
    "two entries with one external id": (FindingKind.DUPLICATE, plant_duplicate_entry),
    "run of another train": (MISMATCH, lambda past: plant_in_run(past, train="fail")),
    "run with another input": (MISMATCH, lambda past: plant_in_run(past, input="77")),
    "run of another group": (MISMATCH, lambda past: plant_in_run(past, group_id=None)),
    "run with another priority": (MISMATCH, lambda past: plant_in_run(past, priority=9)),
    "run of another job": (MISMATCH, lambda past: plant_in_run(past, external_id="f" * 32)),
    "run without its manifest": (MISMATCH, lambda past: plant_in_scheduled_run(past, manifest_id=None)),
    "two scheduled entries of a manifest": (FindingKind.SCHEDULED_TWICE, plant_second_schedule),
    "cancelled by nobody": (FindingKind.CANCELLED_BY_NOBODY, plant_cancelled),
    "a failure, cancelled by nobody": (FindingKind.CANCELLED_BY_NOBODY, plant_cancelled_failure),
    "attempts beyond the policy": (FindingKind.TOO_MANY_ATTEMPTS, plant_attempts),
    "attempts beyond the manifest's": (FindingKind.TOO_MANY_ATTEMPTS, plant_attempts_of_manifest),
    "an attempt is missing": (FindingKind.ATTEMPT_MISSING, plant_attempt_gap),
    "the first attempt is missing": (FindingKind.ATTEMPT_MISSING, plant_missing_first_attempt),
    "a snooze that was counted": (FindingKind.ATTEMPT_MISSING, plant_counted_snooze),
    "an attempt twice": (TWICE, plant_repeated_attempt),
    "two runs of an entry": (TWICE, plant_second_run),
    "a run of a queued entry": (TWICE, plant_run_of_queued_entry),
    "wrongly exempt": (OUTSIDE, lambda past: plant_in_run(past, exempt=True)),
    "a batch wrongly exempt": (OUTSIDE, plant_exempt_batch),
    "wrongly counted": (OUTSIDE, plant_counted_exempt),
    "without submitter": (OUTSIDE, lambda past: plant_in_run(past, submitter=None)),
    "admitted from no entry": (FindingKind.ORPHAN, lambda past: plant_in_run(past, entry_id=None)),
    "its entry does not exist": (FindingKind.ORPHAN, lambda past: plant_in_run(past, entry_id=FAR)),
    "its parent does not exist": (FindingKind.ORPHAN, lambda past: plant_in_run(past, parent_id=FAR)),
    "wrong group priority": (
        FindingKind.WRONG_PRIORITY,
        plant_priority,
    ),
    "overtaken in its batch": (FindingKind.ORDER_INVERTED, plant_inversion),
    "urgent, but admitted last": (FindingKind.ORDER_INVERTED, plant_urgent_last),
    "ended by a worker that never existed": (
        FindingKind.UNKNOWN_WORKER,
        lambda past: plant_in_run(past, worker_id=FAR),
    ),
    "completed without a worker": (
        FindingKind.UNKNOWN_WORKER,
        lambda past: plant_in_run(past, worker_id=None),
    ),
    "a dispatched entry without its run": (FindingKind.ENTRY_LOST, plant_lost_run),
    "ended without an end": (IMPOSSIBLE, plant_without_end),
    "active with an end": (IMPOSSIBLE, plant_end_of_active),
    "failed without a failure": (IMPOSSIBLE, lambda past: plant_in_run(past, state="failed")),
    "started before it was created": (
        IMPOSSIBLE,
        lambda past: plant_in_run(past, started_at=NOON - HOUR),
    ),
    "dispatched before its time": (
        IMPOSSIBLE,
        lambda past: plant_in_entry(past, scheduled_at=past.harness.now),
    ),
    "ready before its time": (IMPOSSIBLE, lambda past: plant_in_waiting(past, ready=True)),
    "cancelled, though it completed": (
        IMPOSSIBLE,
        lambda past: plant_in_entry(past, status="cancelled", dispatched_at=None),
    ),
    "a dead letter of a success": (FindingKind.WRONG_LETTER, plant_letter_of_success),
    "a dead letter of a retried run": (FindingKind.WRONG_LETTER, plant_letter_of_retried),
    "a dead letter of another train": (
        FindingKind.WRONG_LETTER,
        lambda past: plant_in_letter(past, "retried", train="work"),
    ),
    "a dead letter of no run": (
        FindingKind.ORPHAN,
        lambda past: plant_in_letter(past, "retried", last_metadata_id=FAR),
    ),
    "retried by no run": (
        FindingKind.ORPHAN,
        lambda past: plant_in_letter(past, "retried", retry_metadata_id=FAR),
    ),
    "queued for no dead letter": (
        FindingKind.ORPHAN,
        lambda past: plant_in_entry(past, dead_letter_id=FAR),
    ),
    "two dead letters of a run": (FindingKind.DUPLICATE, plant_second_letter),
    "two open dead letters of a manifest": (FindingKind.DUPLICATE, plant_second_open_letter),
    "a dead letter deleted while it waited": (FindingKind.FAILURE_LOST, plant_deleted_open_letter),
    "two scheduled runs at once": (FindingKind.TOO_MANY_INSTANCES, plant_overlap),
    "a manifest without a next look": (FindingKind.MANIFEST_SILENT, plant_silence),
    "a group removed under its entries": (FindingKind.ORPHAN, plant_removed_group),
}


@module_loop
@pytest.mark.parametrize("name", CORRUPTIONS)
async def test_each_corruption_is_named(past: EditedHistory, name: str) -> None:
    kind, plant = CORRUPTIONS[name]
    ids = plant(past)

    found = (await past.found()).findings

    assert [each.text for each in found if each.kind is kind and each.ids[: len(ids)] == ids], found


def test_a_corruption_of_each_kind_is_planted_somewhere() -> None:
    """Those that are planted in other modules are named here."""
    elsewhere = {
        FindingKind.LIMIT_EXCEEDED,
        FindingKind.KEY_OVERLAP,
        FindingKind.RUN_LOST,
        FindingKind.REQUEUE_LOST,
        FindingKind.OCCURRENCE_MISSED,
        FindingKind.WAITS_TOO_LONG,
        FindingKind.GROUP_REMOVED,
    }

    assert {kind for kind, _ in CORRUPTIONS.values()} == {*FindingKind} - elsewhere


@module_loop
async def test_a_claimed_run_that_has_not_started_is_no_corruption(past: EditedHistory) -> None:
    """A worker holds it ahead; it may also be put back uncounted, or cancelled while it waits."""
    run = completed(past, place=7)
    later = past.repeat("metadata", run.id, started_at=None, ended_at=None, state="pending", worker_id=None)
    past.edit("work_queue", run.entry_id, metadata_id=later)
    values = {"state": "cancelled", "started_at": None, "output": None}
    past.edit("metadata", run.id, **values, failure_exception="Interrupted", failure_reason="lost")
    past.edit("metadata", later, state="in_progress", worker_id=run.worker_id, created_at=past.harness.now)

    assert (await past.found()).counts == {}


@module_loop
async def test_a_group_with_a_limit_of_an_operator_that_is_gone_is_found(past: EditedHistory) -> None:
    await past.app.groups.update("etl", max_active_jobs=1)
    [group] = [row for row in past.rows("manifest_group") if row.name == "etl"]
    past.drop("manifest_group", group.id)

    found = await past.found()

    [finding] = [each for each in found.findings if each.kind is FindingKind.GROUP_REMOVED]
    assert finding.text.startswith("group 'etl' does not exist, though an operator changed its limits")
    assert found.undecided[FindingKind.GROUP_REMOVED] == 1


@module_loop
async def test_deleted_or_unrecorded_facts_are_reported_as_not_verified(past: EditedHistory) -> None:
    """A program that only knows the database: it has no code, and the audit log was cut."""
    for row in past.rows("audit"):
        past.drop("audit", row.id)
    for run in [row for row in past.rows("metadata") if row.train == "work"][:3]:
        past.drop("metadata", run.id)
        past.drop("work_queue", run.entry_id)
    await past.app.work_queue.cancel([waiting(past).id])

    found = verify(past.store)

    kinds = {FindingKind.LIMIT_EXCEEDED, FindingKind.OUTSIDE_LIMITS, FindingKind.CANCELLED_BY_NOBODY}
    assert kinds <= found.undecided.keys()
    told = "\n".join(found.notes)
    assert "3 ids of the period have no run: deleted, or never used" in told
    assert "3 ids of the period have no entry" in told
    for kind in kinds:
        assert f"{kind.replace('_', ' ')}: not decided in " in told


@module_loop
async def test_inputs_with_secrets_that_differ_are_not_decided(past: EditedHistory) -> None:
    """They may have been encrypted again in one table, and not yet in the other."""
    run = completed(past)
    past.edit("metadata", run.id, input='{"password": {"$secret": "v1:one"}}')
    past.edit("metadata", completed(past, place=1).id, input='{"_truncated": true, "_maxBytes": 9}')
    past.edit("metadata", completed(past, place=2).id, input=None)

    found = await past.found()

    assert (found.counts, found.undecided) == ({}, {FindingKind.RECORD_MISMATCH: 1})
