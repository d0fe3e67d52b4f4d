"""`app.verify` on schedules: missing entries are found, except those that were held back."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from tests.support.edited_history import NOON, EditedHistory
from tests.support.kept_rows import DIALECTS, KeptRows, module_database

from trax import Retry, Trax, cron, every, exclude
from trax.inspect import verify as verify_module
from trax.inspect.verify import verify
from trax.records.verification import FindingKind
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

MISSED = FindingKind.OCCURRENCE_MISSED
LOST = FindingKind.FAILURE_LOST
AS_INTERVAL = {"schedule_type": "interval", "interval_seconds": 3_600, "cron_expression": None}
NEVER_QUEUED = {
    "last_scheduled_for": None,
    "last_successful_run": None,
    "consumed_parent_success_at": None,
    "next_due_at": None,
    "enabled": True,
}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=DIALECTS)
async def whole_past(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[EditedHistory]:
    """Four hours of schedules, with pauses, failures, exclusions, and records that were deleted since."""
    with module_database(request, tmp_path_factory, request.param) as url:
        app = Trax(url, dead_letter_retention_period=timedelta(hours=1))
        declare(app)
        async with Harness(app, now=NOON) as harness:
            for step in range(24):
                await harness.advance(minutes=10)
                await harness.run_until_idle()
                if step == 5:
                    await app.manifests.disable("paused")
                    await app.groups.update("paused", enabled=False)
                if step == 14:
                    await app.manifests.enable("paused")
                    await app.groups.update("paused", enabled=True)
            await app.manifests.disable("disabled")
            await harness.advance(minutes=1)
            with KeptRows(url) as kept:
                yield EditedHistory(kept, app, harness)


def declare(app: Trax) -> None:
    @app.train
    def work(number: int) -> int:
        return number

    @app.train(max_retries=2, retry=Retry(max_retries=2, delay=timedelta(minutes=1)))
    def fail(number: int) -> None:
        raise RuntimeError(f"number {number}")

    app.schedule(work, "often", 1, cron("*/10 * * * *"))
    app.schedule(work, "daily", 2, cron("0 13 * * *")).include(work, "after-daily", 3)
    app.schedule_once(work, "once", 4, delay=timedelta(minutes=30))
    app.schedule(fail, "failing", 5, cron("30 14 * * *"), max_retries=2)
    app.schedule(work, "weekly", 6, cron("0 0 * * sun"))
    app.schedule(work, "excluded", 7, cron("0 * * * *"), exclude=[exclude.dates("2027-03-01")])
    app.schedule(work, "paused", 8, cron("*/20 * * * *"))
    app.schedule(work, "paused-group", 9, every(minutes=20), group="paused").include(work, "after-paused", 10)
    app.schedule(work, "disabled", 11, every(hours=3))


@pytest.fixture
def past(whole_past: EditedHistory) -> EditedHistory:
    whole_past.restore()
    return whole_past


def manifest_of(past: EditedHistory, external_id: str) -> Any:
    [found] = [row for row in past.rows("manifest") if row.external_id == external_id]
    return found


def forget(past: EditedHistory, external_id: str, **values: Any) -> int:
    """Delete the entries and runs of a manifest, and edit it; returns its id."""
    manifest_id = manifest_of(past, external_id).id
    for table in ("work_queue", "metadata"):
        for row in past.rows(table):
            if row.manifest_id == manifest_id:
                past.drop(table, row.id)
    past.edit("manifest", manifest_id, **values)
    return manifest_id


async def test_a_history_with_pauses_failures_and_exclusions_is_clean(past: EditedHistory) -> None:
    found = await past.found()

    assert (found.findings, found.dead_letters) == ((), 1)
    assert {"paused", "paused-group", "daily", "after-daily", "once"} <= {
        row.external_id for row in past.rows("manifest") if row.last_successful_run
    }


async def test_records_deleted_since_are_not_reported_missing(past: EditedHistory) -> None:
    """By the cleanup, which also takes whole histories, and by the retention of dead letters."""
    [letter] = past.rows("dead_letter")
    await past.app.dead_letters.acknowledge([letter.id], "known")
    await past.app.settings.update(
        metadata_cleanup_enabled=True,
        metadata_cleanup_retention=timedelta(minutes=30),
        metadata_cleanup_trains=["work", "fail"],
    )
    before = len(past.rows("work_queue"))
    for _ in range(7):
        await past.harness.advance(minutes=10)
        await past.harness.run_until_idle()
        await past.harness.cycle("metadata_cleanup")

    assert len(past.rows("work_queue")) < before / 2
    assert (await past.found()).findings == ()


@pytest.mark.parametrize("schedule", [{}, AS_INTERVAL], ids=["cron", "interval"])
async def test_a_schedule_that_never_got_an_entry_is_found(
    past: EditedHistory, schedule: dict[str, Any]
) -> None:
    manifest_id = forget(past, "daily", **NEVER_QUEUED, **schedule)

    missed, silent = (await past.found()).findings

    assert (missed.kind, missed.ids) == (MISSED, (manifest_id,))
    assert missed.text.endswith("while others were queued in time; it never had one")
    assert (silent.kind, silent.ids) == (FindingKind.MANIFEST_SILENT, (manifest_id,))


@pytest.mark.parametrize(
    ("external_id", "words"), [("after-daily", "its parent succeeded"), ("once", "its time has come")]
)
async def test_a_dependent_or_a_single_run_that_never_ran_is_found(
    past: EditedHistory, external_id: str, words: str
) -> None:
    manifest_id = forget(past, external_id, **NEVER_QUEUED)

    [finding] = (await past.found()).findings

    assert (finding.kind, finding.ids) == (MISSED, (manifest_id,))
    assert f"got no entry although {words}" in finding.text


@pytest.mark.parametrize("external_id", ["daily", "after-daily", "once"])
async def test_a_manifest_that_is_held_back_is_not_reported(past: EditedHistory, external_id: str) -> None:
    manifest = manifest_of(past, external_id)
    forget(past, external_id, **NEVER_QUEUED)
    past.edit("manifest_group", manifest.group_id, enabled=False)
    disabled_group = (await past.found()).findings
    past.edit("manifest_group", manifest.group_id, enabled=True)
    past.edit("manifest", manifest.id, enabled=False)

    assert [each for each in disabled_group if each.noun == "manifest"] == []
    assert (await past.found()).findings == ()


@pytest.mark.parametrize("max_retries", [2, 9], ids=["dead letter", "retry"])
async def test_a_failed_manifest_without_a_retry_and_without_a_dead_letter_is_found(
    past: EditedHistory, max_retries: int
) -> None:
    [letter] = past.rows("dead_letter")
    past.edit("manifest", letter.manifest_id, max_retries=max_retries)
    past.drop("dead_letter", letter.id)

    [finding] = (await past.found()).findings

    assert (finding.kind, finding.ids) == (LOST, (letter.manifest_id,))
    assert "was not retried and has no dead letter" in finding.text


async def test_a_manifest_that_waits_for_its_retry_is_not_found(past: EditedHistory) -> None:
    [letter] = past.rows("dead_letter")
    past.drop("dead_letter", letter.id)
    later = past.harness.now + timedelta(minutes=5)
    past.edit("manifest", letter.manifest_id, max_retries=9, next_due_at=later, retry_at=later)

    assert (await past.found()).findings == ()


async def test_without_a_working_manager_nothing_is_decided(past: EditedHistory) -> None:
    """Nobody was queued since: it may have been stopped."""
    forget(past, "after-daily", **NEVER_QUEUED)
    past.harness.now += timedelta(hours=2)

    found = await past.found()

    assert found.findings == ()
    assert found.undecided[MISSED] > 0


async def test_more_manifests_than_fit_into_one_pass_are_decided_in_several(
    past: EditedHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = {forget(past, name, **NEVER_QUEUED) for name in ("daily", "paused")}
    whole = verify(past.store)
    monkeypatch.setattr(verify_module, "MAX_TIMED_MANIFESTS", 1)
    progress: list[tuple[int, int]] = []

    in_parts = verify(past.store, on_progress=lambda done, of: progress.append((done, of)))

    assert {each.ids[0] for each in whole.findings if each.kind is MISSED} == ids
    assert (set(in_parts.findings), in_parts.counts) == (set(whole.findings), whole.counts)
    assert progress == sorted(progress)
