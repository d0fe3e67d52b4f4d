from __future__ import annotations

import re
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.store.test_claim import WORKER, pending

from trax import NotFound, Retry, Snooze, Trax, every, exclude
from trax.app.queue import enqueue_without_code
from trax.store import workers
from trax.store.runs import claim
from trax.store.runs.claim import ClaimRequest
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from datetime import datetime

    from trax import Reason, Submission


def app_at(url: str, **settings: Any) -> Trax:
    app = Trax(url, **settings)

    @app.train
    async def greet(name: str) -> None:
        if name == "nobody":
            raise ValueError(name)

    return app


def greet_of(app: Trax) -> Any:
    return app.trains.get("greet")


def codes(reasons: list[Reason]) -> list[str]:
    return [reason.code for reason in reasons]


async def test_a_due_manifest_is_queued_by_the_next_cycle(url: str) -> None:
    app = app_at(url)
    app.schedule(greet_of(app), "ada", "Ada", every(hours=1))
    async with Harness(app):
        [reason] = await app.why("ada")

    assert (reason.code, str(reason)) == ("due", "it is due; the next cycle queues it")


async def test_a_manifest_waits_for_its_next_occurrence(url: str) -> None:
    app = app_at(url)
    app.schedule(greet_of(app), "ada", "Ada", every(hours=1))
    async with Harness(app) as h:
        await h.run_until_idle()

        [reason] = await app.why("ada")

        assert (reason.code, reason.until) == ("waiting", h.now + timedelta(hours=1))


async def test_an_exclusion_is_reported_with_its_end(url: str, now: datetime) -> None:
    app = app_at(url)
    app.schedule(greet_of(app), "ada", "Ada", every(hours=1), exclude=[exclude.time_window("11:00", "15:00")])
    async with Harness(app, now):
        [reason] = await app.why("ada")

    assert (reason.code, reason.until) == ("excluded", now + timedelta(hours=3))


async def test_all_reasons_against_a_run_are_listed_in_order(url: str) -> None:
    app = app_at(url)
    app.schedule(greet_of(app), "nobody", "nobody", every(hours=1), group="people", max_retries=1)
    async with Harness(app) as h:
        await h.run_until_idle()
        await h.cycle("manifest_manager")
        [letter] = await app.dead_letters.list()
        await app.manifests.disable("nobody")
        await app.groups.update("people", enabled=False)

        reasons = await app.why("nobody")

    assert codes(reasons) == ["disabled", "dead_letter", "group_disabled"]
    assert reasons[1].ids == (letter.id,)
    assert reasons[1].text == f"dead letter {letter.id} awaits an operator"
    assert "'people'" in reasons[2].text


async def test_a_dependent_names_the_parent_it_waits_for(url: str) -> None:
    app = app_at(url)
    app.schedule(greet_of(app), "ada", "Ada", every(hours=1)).include(greet_of(app), "grace", "Grace")
    async with Harness(app):
        [reason] = await app.why("grace")

    assert reason.code == "parent"
    assert reason.text == "its parent has not succeeded yet (it depends on 'ada')"


async def test_a_failed_manifest_waits_for_its_next_try(url: str) -> None:
    app = app_at(url)
    retry = Retry(max_attempts=3, delay=timedelta(minutes=5))
    app.schedule(greet_of(app), "nobody", "nobody", every(hours=1), retry=retry)
    async with Harness(app) as h:
        await h.run_until_idle()

        queued, again = await app.why("nobody")

        assert (queued.code, again.code) == ("queued", "retry")
        assert (again.until, again.ids) == (h.now + timedelta(minutes=5), queued.ids)


async def test_a_disabled_manager_is_a_reason(url: str) -> None:
    app = app_at(url, manifest_manager_enabled=False)
    app.schedule(greet_of(app), "ada", "Ada", every(hours=1))
    async with Harness(app):
        assert codes(await app.why("ada")) == ["manager_off"]


async def test_a_full_group_is_named_with_the_runs_that_fill_it(url: str) -> None:
    app = app_at(url, max_active_jobs=5)
    app.group("people", max_active_jobs=1)
    async with Harness(app) as h:
        running = await app.queue(greet_of(app), "Ada", group="people")
        waiting = await app.queue(greet_of(app), "Grace", group="people")
        await h.cycle("job_dispatcher")
        run = (await app.work_queue.get(running.id)).metadata_id

        full, worker = await app.why(waiting.id)

    assert (full.code, full.ids) == ("group_full", (run,))
    assert full.text == "its group 'people' is full: 1 of at most 1 runs"
    assert worker.text == "no worker is alive"


async def test_a_full_group_is_a_reason_for_a_delayed_entry_not_yet_promoted(url: str) -> None:
    app = app_at(url)
    app.group("people", max_active_jobs=1)
    async with Harness(app) as h:
        await app.queue(greet_of(app), "Ada", group="people")
        later = await app.queue(greet_of(app), "Grace", group="people", delay=timedelta(minutes=1))
        await h.cycle("job_dispatcher")
        await h.advance(minutes=1)

        assert codes(await app.why(later.id)) == ["group_full", "no_worker"]


async def test_the_limit_of_all_comes_before_that_of_the_group(url: str) -> None:
    app = app_at(url, max_active_jobs=1)
    app.group("people", max_active_jobs=1)
    async with Harness(app) as h:
        await app.queue(greet_of(app), "Ada", group="people")
        waiting = await app.queue(greet_of(app), "Grace", group="people")
        await h.cycle("job_dispatcher")

        assert codes(await app.why(waiting.id)) == ["full", "group_full", "no_worker"]


async def test_an_entry_is_behind_those_that_fill_what_is_left(url: str) -> None:
    app = app_at(url, max_active_jobs=1)
    async with Harness(app):
        last = await app.queue(greet_of(app), "Ada", priority=1)
        urgent = await app.queue(greet_of(app), "Grace", priority=9)

        behind, _ = await app.why(last.id)

        assert (behind.code, behind.text, behind.ids) == ("behind", "1 entry comes before it", (urgent.id,))
        assert codes(await app.why(urgent.id)) == ["no_worker"]


async def test_workers_must_live_have_the_train_and_a_free_slot(url: str) -> None:
    app = app_at(url)
    async with Harness(app) as h:
        store = await app.context.store.open()
        entry = await app.queue(greet_of(app), "Ada")
        await store.call(workers.register, {**WORKER, "trains": '["other"]'}, now=h.now)
        others = await app.why(entry.id)
        await store.call(workers.register, {**WORKER, "concurrency": 1}, now=h.now)

        free = await app.why(entry.id)
        await store.call(pending, 1, h.now)
        taken = await app.why(entry.id)
        await h.advance(minutes=1)
        gone = await app.why(entry.id)

    assert [str(reason) for reason in others] == ["no live worker accepts train 'greet'"]
    assert codes(free) == ["due"]
    assert codes(taken) == ["no_slot"]
    assert [str(reason) for reason in gone] == ["no worker is alive"]


async def test_a_delayed_entry_reports_its_due_time(url: str) -> None:
    app = app_at(url)
    async with Harness(app) as h:
        entry = await app.queue(greet_of(app), "Ada", delay=timedelta(minutes=5))

        [reason] = await app.why(str(entry.id))

        assert (reason.code, reason.until) == ("delayed", h.now + timedelta(minutes=5))


async def test_a_disabled_dispatcher_is_the_first_reason(url: str) -> None:
    app = app_at(url, job_dispatcher_enabled=False)
    app.group("people", enabled=False)
    async with Harness(app):
        entry = await app.queue(greet_of(app), "Ada", group="people")

        assert codes(await app.why(entry.id)) == ["dispatcher_off", "group_disabled", "no_worker"]


async def test_an_admitted_entry_reports_its_run(url: str) -> None:
    app = app_at(url)
    app.schedule(greet_of(app), "ada", "Ada", every(hours=1))
    async with Harness(app) as h:
        entry, withdrawn = [await app.queue(greet_of(app), name) for name in ("Ada", "Grace")]
        await app.work_queue.cancel([withdrawn.id])
        await h.cycle("manifest_manager")
        await h.cycle("job_dispatcher")
        pending, of_manifest = await app.why(entry.id), await app.why("ada")
        await h.work()

        assert codes(pending) == codes(of_manifest)[:2] == ["no_worker", "pending"]
        assert codes(await app.why(entry.id)) == ["over"]
        assert codes(await app.why(withdrawn.id)) == ["withdrawn"]


async def test_a_run_to_hand_over_names_its_submitter(url: str) -> None:
    class Post:
        name = "post"

        async def submit(self, batch: Sequence[Submission], /) -> None:
            raise AssertionError(batch)

    app = app_at(url)
    app.route(greet_of(app), to=Post())
    async with Harness(app) as h:
        entry = await app.queue(greet_of(app), "Ada")
        queued = await app.why(entry.id)
        await h.cycle("job_dispatcher")

        [reason] = await app.why(entry.id)

    assert codes(queued) == ["due"]
    assert "waits to be handed over to 'post'" in reason.text


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("adda", "there is no manifest 'adda'"),
        (99, "there is no entry, run or manifest 99"),
        ("run:9", "no run 9"),
    ],
)
async def test_an_unknown_name_or_number_raises_not_found(what: str | int, said: str) -> None:
    app = app_at("memory://")
    async with Harness(app):
        with pytest.raises(NotFound, match=said):
            await app.why(what)


async def test_a_parked_entry_names_the_train_its_neighbour_and_when_it_is_given_up(url: str) -> None:
    app = app_at(url)
    async with Harness(app) as h:
        entry = await enqueue_without_code(app.context, "greeet", None, {})
        await h.cycle("job_dispatcher")

        [reason] = await app.why(entry.id)

        assert (reason.code, reason.until) == ("no_worker", h.now + timedelta(minutes=20))
        assert reason.text.startswith("no live worker accepts train 'greeet'")


async def test_a_pending_run_does_not_blame_slots_that_are_free(url: str) -> None:
    app = app_at(url)
    async with Harness(app) as h:
        store = await app.context.store.open()
        await store.call(workers.register, {**WORKER, "concurrency": 2}, now=h.now)
        for name in ("Ada", "Grace"):
            await app.queue(greet_of(app), name)
        await h.cycle("job_dispatcher")

        reasons = await app.why("run:1")

        assert codes(reasons) == ["pending"]


async def test_a_run_is_found_by_its_number_or_its_external_id(url: str) -> None:
    app = app_at(url)
    async with Harness(app) as h:
        first = await app.queue(greet_of(app), "Ada", delay=timedelta(hours=1))
        second = await app.queue(greet_of(app), "Grace")
        await h.cycle("job_dispatcher")

        assert codes(await app.why(first.id)) == ["delayed"]
        assert codes(await app.why("run:1"))[-1] == "pending"
        assert await app.why(second.external_id) == await app.why("run:1") == await app.why("entry:2")


async def test_a_job_to_be_retried_reports_the_reason_and_the_time(url: str) -> None:
    app = app_at(url)
    async with Harness(app) as h:
        entry = await app.queue(greet_of(app), "nobody", retry=Retry(delay=timedelta(minutes=9)))
        await h.run_until_idle()

        [reason] = await app.why(entry.id)

        assert (reason.code, reason.until) == ("retry", h.now + timedelta(minutes=9))
        assert reason.text.endswith("after ValueError: nobody")


async def test_a_failed_hand_over_is_named(url: str) -> None:
    class Post:
        name = "post"

        async def submit(self, _batch: Sequence[Submission], /) -> None:
            raise OSError("the line is dead")

    app = app_at(url)
    app.route(greet_of(app), to=Post())
    async with Harness(app) as h:
        entry = await app.queue(greet_of(app), "Ada")
        await h.run_until_idle()

        [reason] = await app.why(entry.id)

        assert reason.code == "hand_over_failed"
        assert "the hand-over failed once, last with OSError: the line is dead" in reason.text


async def test_without_code_why_uses_the_settings_that_servers_publish(url: str) -> None:
    if url == "memory://":
        return
    app = app_at(url, max_active_jobs=1, polling_interval=timedelta(hours=1))
    async with Harness(app) as h:
        store = await app.context.store.open()
        row = {"kind": "worker", "concurrency": 4, "trains": '["greet"]', "dispatches": True, "declares": ""}
        await store.call(app.context.heartbeat.register, store, row)
        entries = [await app.queue(greet_of(app), name) for name in ("Ada", "Grace")]
        await h.cycle("job_dispatcher")
        onlooker = Trax(url)
        onlooker.context.store.clock = lambda: h.now
        try:
            [reason] = await onlooker.why(entries[1].id)
        finally:
            onlooker.close()

        assert (reason.code, "1 of at most 1 runs" in reason.text) == ("full", True)


async def test_nothing_is_promised_for_the_next_cycle_without_a_scheduler(url: str) -> None:
    if url == "memory://":
        return
    app = app_at(url)
    app.schedule(greet_of(app), "ada", "Ada", every(hours=1))
    async with Harness(app) as h:
        ready = await app.queue(greet_of(app), "Grace")
        later = await app.queue(greet_of(app), "Eve", delay=timedelta(hours=1))
        async with asked_elsewhere(url, h) as onlooker:
            due, queued, delayed = [await onlooker.why(what) for what in ("ada", ready.id, later.id)]

    assert codes(due) == ["no_scheduler"]
    assert codes(queued) == ["no_scheduler", "no_worker"]
    assert codes(delayed) == ["delayed", "no_scheduler"]
    assert str(due[0]).endswith("start `trax run`")


async def test_a_live_scheduler_without_the_code_of_the_asker_is_enough(url: str) -> None:
    if url == "memory://":
        return
    app = app_at(url)
    app.schedule(greet_of(app), "ada", "Ada", every(hours=1))
    async with Harness(app) as h:
        store = await app.context.store.open()
        await store.call(workers.register, {**WORKER, "kind": "scheduler", "declares": ""}, now=h.now)
        async with asked_elsewhere(url, h) as onlooker:
            alive = await onlooker.why("ada")
            await h.advance(seconds=21)
            silent = await onlooker.why("ada")

    assert (codes(alive), codes(silent)) == (["due"], ["no_scheduler"])


async def test_why_names_a_manager_that_is_off_for_a_manifest_that_is_not_due(url: str) -> None:
    app = app_at(url)
    app.schedule(greet_of(app), "ada", "Ada", every(hours=1))
    async with Harness(app) as h:
        await h.run_until_idle()
        await app.settings.update(manifest_manager_enabled=False)

        assert codes(await app.why("ada")) == ["waiting", "manager_off"]


async def test_why_names_a_dispatcher_that_is_off_for_a_delayed_entry(url: str) -> None:
    app = app_at(url, job_dispatcher_enabled=False)
    async with Harness(app):
        entry = await app.queue(greet_of(app), "Ada", delay=timedelta(hours=1))

        assert codes(await app.why(entry.id)) == ["delayed", "dispatcher_off"]


async def test_the_retry_of_a_manifest_names_its_failure(url: str) -> None:
    app = app_at(url)
    app.schedule(greet_of(app), "nobody", "nobody", every(hours=1), retry=Retry(delay=timedelta(minutes=5)))
    async with Harness(app) as h:
        await h.run_until_idle()

        _, again = await app.why("nobody")

        assert again.code == "retry"
        assert again.text.endswith("after ValueError: nobody")


@pytest.mark.parametrize("is_scheduled", [True, False])
async def test_why_gives_the_reason_of_a_snoozed_job(url: str, *, is_scheduled: bool) -> None:
    app = Trax(url)

    @app.train
    async def load(table: str) -> None:
        raise Snooze(timedelta(minutes=7), f"{table} is locked")

    if is_scheduled:
        app.schedule(load, "load-users", "users", every(hours=1))
    async with Harness(app) as h:
        entry = None if is_scheduled else await app.queue(load, "users")
        await h.run_until_idle()

        reason = (await app.why("load-users" if entry is None else entry.id))[-1]

        assert (reason.code, reason.until) == ("delayed", h.now + timedelta(minutes=7))
        assert re.fullmatch(r"it was snoozed by run \d+: users is locked; it runs again at .*", reason.text)


async def test_a_retry_after_a_snooze_names_the_failure_and_not_the_snooze(url: str) -> None:
    app = Trax(url)
    endings: list[Exception] = [ValueError("broken"), Snooze(timedelta(minutes=7), "locked")]

    @app.train(retry=Retry(delay=timedelta(minutes=9)))
    async def load(table: str) -> None:
        del table
        raise endings.pop()

    async with Harness(app) as h:
        entry = await app.queue(load, "users")
        await h.run_until_idle()
        await h.advance(minutes=7)
        await h.run_until_idle()

        [reason] = await app.why(entry.id)

        assert reason.code == "retry"
        assert reason.text.endswith("after ValueError: broken")


@pytest.mark.parametrize("is_registered", [True, False])
async def test_a_run_whose_worker_is_silent_does_not_read_as_running(
    url: str, *, is_registered: bool
) -> None:
    app = app_at(url)
    async with Harness(app) as h:
        store = await app.context.store.open()
        worker = await store.call(workers.register, WORKER, now=h.now)
        await app.queue(greet_of(app), "Ada")
        await h.cycle("job_dispatcher")
        request = ClaimRequest(worker, "box", 1, frozenset({"greet"}))
        await store.call(claim.claim, request, now=h.now)
        [running] = await app.why("run:1")
        await h.advance(seconds=21)
        if not is_registered:
            await store.call(workers.remove, worker, has_run=True)

        [silent] = await app.why("run:1")

    assert running.code == "active"
    assert silent.code == "worker_silent"
    assert ("has been silent since" if is_registered else "is gone") in silent.text
    assert silent.text.endswith("a manager cycle ends it as WorkerLost")


@asynccontextmanager
async def asked_elsewhere(url: str, h: Harness) -> AsyncGenerator[Trax]:
    """An app without trains in another process, at the time of the harness."""
    onlooker = Trax(url)
    onlooker.context.store.clock = lambda: h.now
    try:
        yield onlooker
    finally:
        onlooker.close()
