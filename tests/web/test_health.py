"""Health and metrics for monitors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.flow_seeding import register_server
from tests.support.waiting import until
from tests.support.web_app import railway, web_app

from trax.records import status as status_records
from trax.records.status import Condition, Status, health_of
from trax.store import status as store_status
from trax.web import metrics
from trax.web.metrics import quantile

if TYPE_CHECKING:
    from datetime import datetime

    from tests.support.web_app import WebApp

Samples = dict[tuple[str, ...], float]


def status(now: datetime, **counts: Any) -> Status:
    zero = ("ready", "delayed", "pending", "pending_local", "running", "failed_last_hour", "dead_letters")
    quiet: dict[str, Any] = {"manifests_enabled": 0, "manifests_disabled": 0, **dict.fromkeys(zero, 0)}
    return Status(
        now=now, next_due_at=None, next_delayed_at=None, ready_since=None, workers=(), **{**quiet, **counts}
    )


@pytest.mark.parametrize(
    ("counts", "condition"),
    [
        ({}, Condition.HEALTHY),
        ({"failed_last_hour": 10}, Condition.HEALTHY),
        ({"failed_last_hour": 11}, Condition.DEGRADED),
        ({"dead_letters": 1}, Condition.DEGRADED),
        ({"parked": 1}, Condition.DEGRADED),
    ],
)
def test_failures_and_dead_letters_degrade_health(
    now: datetime, counts: dict[str, int], condition: Condition
) -> None:
    assert health_of(status(now, **counts)).condition is condition


async def test_servers_that_declare_different_manifests_degrade_health(url: str) -> None:
    async with web_app(url) as room:
        now = room.harness.now
        await register_server(room.app, declares="one set", now=now)
        before = (await room.api.get("/health")).json()
        await register_server(room.app, declares="another set", pid=7, now=now)
        after = (await room.api.get("/health")).json()

    assert (before["status"], before["problems"]) == ("Healthy", [])
    assert after["status"] == "Degraded"
    assert "servers of app 'default' declare different manifests or groups" in after["problems"][0]


async def test_health_reports_four_numbers(url: str) -> None:
    async with web_app(url) as room:
        await room.app.queue("serve_coffee", {"customer": "Eve", "cups": 10})
        await room.harness.run_until_idle()
        await room.app.queue("serve_coffee", {"customer": "Eve"}, priority=1)

        told = (await room.api.get("/health")).json()

    assert told["status"] == "Degraded"
    assert {name: told[name] for name in ("queueDepth", "inProgress", "failedLastHour", "deadLetters")} == {
        "queueDepth": 1,
        "inProgress": 0,
        "failedLastHour": 1,
        "deadLetters": 1,
    }


async def test_health_marks_numbers_that_are_lower_bounds(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_status, "COUNT_LIMIT", 2)
    monkeypatch.setattr(status_records, "COUNT_LIMIT", 2)
    async with web_app(url) as room:
        await room.app.queue("serve_coffee", {"customer": "Eve"})
        few = (await room.api.get("/health")).json()
        await room.app.queue_many("serve_coffee", [{"customer": "Eve"}] * 4)
        many = (await room.api.get("/health")).json()

    assert (few["queueDepth"], few["atLeast"]) == (1, [])
    assert (many["queueDepth"], many["atLeast"]) == (2, ["queueDepth"])


async def measured(room: WebApp) -> Samples:
    answer = await room.api.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(answer.text)
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


async def test_metrics_report_waiting_running_and_ended_jobs(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "FRESH_SECONDS", 0.0)
    async with web_app(url) as room:
        await room.harness.run_until_idle()
        await room.harness.advance(minutes=3)
        await room.harness.cycle("totals")
        await measured(room)  # where counting begins
        await room.app.queue("serve_coffee", {"customer": "Eve", "cups": 10})
        await room.harness.run_until_idle()
        await room.harness.advance(minutes=3)
        await room.harness.cycle("totals")
        await room.app.queue("serve_coffee", {"customer": "Eve"}, group="bar")
        await room.harness.advance(seconds=30)

        told = await measured(room)

    assert (told["trax_queue_ready", "bar"], told["trax_queue_oldest_seconds", "bar"]) == (1, 30)
    assert (told["trax_runs_total", "failed", "serve_coffee"], told["trax_dead_letters",]) == (1, 1)
    assert told["trax_process_admitted_total",] == 3
    assert ("trax_recent_pickup_seconds", "0.95") in told


async def test_run_durations_of_this_process_are_reported_in_buckets(url: str) -> None:
    async with web_app(url) as room:
        await room.app.queue_many("serve_coffee", [{"customer": "Eve"}] * 3)
        await room.harness.run_until_idle()
        await room.post("/trains/serve_coffee/run", {"input": {"customer": "Eve"}})
        done = room.app.context.counters
        done.count_run("slow", 7.0)
        done.count_run("slow", 7_200.0, waited_seconds=0.2)

        told = await measured(room)

    assert told["trax_process_run_seconds_count", "serve_coffee"] == 6
    assert told["trax_process_run_seconds_bucket", "+Inf", "serve_coffee"] == 6
    slow = [told["trax_process_run_seconds_bucket", bound, "slow"] for bound in ("5.0", "10.0", "+Inf")]
    assert slow == [0, 1, 2]
    assert told["trax_process_run_seconds_sum", "slow"] == 7_207
    picked_up = [told["trax_process_pickup_seconds_bucket", bound] for bound in ("0.1", "0.25", "+Inf")]
    assert picked_up == [5, 6, 6]


async def test_metrics_are_cached_for_a_while(url: str) -> None:
    async with web_app(url) as room:
        first = await measured(room)
        await room.app.queue("serve_coffee", {"customer": "Eve"})

        assert await measured(room) == first


async def test_a_server_counts_the_turns_of_its_loops() -> None:
    app = railway("memory://")
    async with app:
        manager = next(loop for loop in app.loops if loop.name == "manifest_manager")
        await asyncio.to_thread(until, lambda: manager.turns > 0)

    assert manager.failed_turns == 0
    assert app.loops == []


def test_a_quantile_is_one_of_the_values() -> None:
    assert [quantile([1.0, 2.0, 3.0, 4.0], share) for share in (0.0, 0.5, 0.99)] == [1.0, 3.0, 4.0]
