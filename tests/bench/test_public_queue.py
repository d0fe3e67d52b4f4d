"""The adapter for the public queue benchmark keeps that benchmark's contract."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from typing import IO, TYPE_CHECKING, Any, cast

import psycopg
import pytest
from tests.support.verified import assert_clean
from tests.support.waiting import until

from bench import figures, public
from bench.adapters import public_queue, public_trax
from bench.adapters.public_queue import Contract, LatencyWindow, Pacer
from bench.adapters.public_trax import PublicSystem
from bench.children import PROJECT
from bench.options import Options
from bench.public import AFTER, BEFORE, SCENARIOS, WARM_UP, Span, summarize
from bench.public_fleet import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


MANIFEST = json.loads((PROJECT / "bench" / "adapters" / "public_queue.json").read_text(encoding="utf-8"))
REQUIRED = {
    "claim_p50_ms",
    "claim_p95_ms",
    "claim_p99_ms",
    "enqueue_rate",
    "completion_rate",
    "queue_depth",
}
ENOUGH = 200
SECONDS_TO_END = 5
"""What the benchmark gives a process from SIGTERM on."""
JOB_SECONDS = 600
AMPLE_SECONDS = 120
"""Far less than a job takes, and more than a busy machine needs."""


def test_the_adapter_describes_itself_reports_its_work_and_ends_on_sigterm(postgres_url: str) -> None:
    with started(postgres_url, PRODUCER_RATE="400", SAMPLE_EVERY_S="1") as process:
        lines = records(process)
        descriptor = next(lines)
        samples = list(until_completed(lines, ENOUGH))
        process.send_signal(signal.SIGTERM)
        samples += lines

    assert process.returncode == 0
    assert descriptor["kind"] == "descriptor"
    assert set(MANIFEST["event_tables"]) <= set(descriptor["event_tables"])
    assert {one["metric"] for one in samples} >= REQUIRED
    assert {one["subject_kind"] for one in samples} == {"adapter"}
    totals = latest(samples)
    with psycopg.connect(postgres_url) as connection:
        queued = count(connection, "SELECT count(*) FROM trax.work_queue")
        completed = count(connection, "SELECT count(*) FROM trax.metadata WHERE state = 'completed'")
    assert totals["enqueued_total"] == queued >= ENOUGH
    assert totals["completed_total"] == completed >= ENOUGH
    assert 0 < totals["claim_p50_ms"] <= totals["claim_p99_ms"]


def test_another_process_of_the_fleet_leaves_the_common_figures_to_the_first(postgres_url: str) -> None:
    with started(postgres_url, BENCH_INSTANCE_ID="1", SAMPLE_EVERY_S="1") as process:
        lines = records(process)
        samples = [next(lines), *until_completed(lines, 1)]
        process.send_signal(signal.SIGTERM)
        samples += lines

    assert {one["instance_id"] for one in samples} == {1}
    assert not {one.get("metric") for one in samples} & public_queue.OBSERVED


def test_the_adapter_stops_within_the_time_the_benchmark_allows() -> None:
    assert public_queue.LAST_CALL_SECONDS + public_trax.END_SECONDS < SECONDS_TO_END


def test_the_adapter_stops_while_jobs_run_and_requeues_them(postgres_url: str) -> None:
    begun = "SELECT count(*) FROM trax.metadata WHERE state = 'in_progress'"
    with (
        started(
            postgres_url, WORKER_COUNT="4", PRODUCER_RATE="40", JOB_WORK_MS=f"{JOB_SECONDS}000"
        ) as process,
        psycopg.connect(postgres_url, autocommit=True) as connection,
    ):
        next(records(process))
        until(lambda: count(connection, begun) == 4)
        process.send_signal(signal.SIGTERM)
        process.wait(AMPLE_SECONDS)

        ended = "SELECT count(*) FROM trax.metadata WHERE failure_exception = 'Interrupted'"
        queued = "SELECT count(*) FROM trax.work_queue WHERE status = 'queued' AND attempt = 1"
        assert count(connection, ended) >= 4
        assert count(connection, queued) == count(connection, "SELECT count(*) FROM trax.work_queue")
        assert count(connection, begun) == 0
    assert process.returncode == 0
    assert_clean(postgres_url)


def test_the_script_runs_a_scenario_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(figures, "LATEST", tmp_path)

    public.main(Options(quick=True, only=("trax", "chaos_pool_exhaustion")))

    said = capsys.readouterr().out
    assert "chaos_pool_exhaustion, Trax  " in said
    assert "accepted jobs lost, in 1 scenarios: 0" in said
    assert "findings of verify, in 1 scenarios: 0" in said
    assert "MISSED" not in said


def started(url: str, **settings: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench.adapters.public_queue"],
        cwd=PROJECT,
        env={**os.environ, "DATABASE_URL": url, "SCENARIO": "long_horizon", **settings},
        stdout=subprocess.PIPE,
        text=True,
    )


def records(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    return map(json.loads, cast("IO[str]", process.stdout))


def until_completed(lines: Iterator[dict[str, Any]], wanted: int) -> Iterator[dict[str, Any]]:
    """Up to the sample that says so; the process goes on."""
    for one in lines:
        yield one
        if one["metric"] == "completed_total" and one["value"] >= wanted:
            return


def latest(samples: list[dict[str, Any]]) -> dict[str, float]:
    return {one["metric"]: one["value"] for one in samples}


def count(connection: psycopg.Connection[Any], query: str) -> int:
    found = connection.execute(query.encode()).fetchone()
    return int(found[0]) if found else 0


@pytest.mark.postgresql
def test_the_manifest_names_tables_and_indexes_that_exist(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        for name in (*MANIFEST["event_tables"], *MANIFEST["event_indexes"]):
            assert count(connection, f"SELECT '{name}'::regclass::oid::bigint")

    assert MANIFEST["event_tables"] == list(PublicSystem.TABLES)


def test_the_load_is_that_of_the_time_that_passed() -> None:
    pacer = Pacer(now=100.0)

    assert pacer.due(800, 100.01, most=128) == 8
    assert pacer.due(800, 100.111, most=128) == 80, "a slow turn is made up for"
    assert pacer.due(800, 100.612, most=128) == 128
    assert pacer.due(800, 100.612, most=1000) == 273, "and what a call had no room for is not forgotten"
    assert pacer.due(0, 200, most=128) == 0
    assert pacer.due(800, 200.0101, most=128) == 8, "a pause is not made up for"


def test_latencies_are_of_the_last_half_minute() -> None:
    window = LatencyWindow()
    for milliseconds in range(1, 101):
        window.add(milliseconds, now=10)
    assert window.percentiles((0.5, 0.95, 0.99), now=39) == [50, 95, 99]

    window.add(0.123456, now=41)

    assert window.percentiles((0.5,), now=41) == [0.123]
    assert window.percentiles((0.5,), now=80) == [0]


def test_the_benchmark_may_change_the_rate_while_it_runs(tmp_path: Path) -> None:
    file = tmp_path / "rate"
    contract = Contract.from_environment(
        {"DATABASE_URL": "postgresql://x/y", "PRODUCER_RATE": "5", "PRODUCER_RATE_CONTROL_FILE": str(file)}
    )
    assert contract.current_rate() == 5

    file.write_text("1200.5")

    assert contract.current_rate() == 1200.5


@pytest.mark.parametrize(
    ("given", "said"), [({}, "DATABASE_URL"), ({"DATABASE_URL": "x", "SCENARIO": "dance"}, "'dance'")]
)
def test_an_invalid_environment_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(SystemExit, match=said):
        Contract.from_environment(given)


def test_a_summary_separates_the_phases_and_times_the_recovery() -> None:
    (stress,) = SCENARIOS[0].stress
    spans = [
        Span(phase, began, began + 10, dead_rows=7)
        for phase, began in ((WARM_UP, 0), (BEFORE, 10), (stress, 20), (AFTER, 30))
    ]
    rates = defaultdict(lambda: 800.0, dict.fromkeys(range(20, 33), 100.0))
    samples = [Sample(second + 0.5, 0, "completion_rate", rates[second]) for second in range(40)]
    samples += [Sample(second + 0.5, 0, "claim_p99_ms", second) for second in range(40)]

    found = summarize(spans, samples)

    assert [phase["rate"] for phase in found["phases"].values()] == [800, 100, 590]
    assert public.worst_stress(found) == found["phases"]["idle-in-tx"]
    assert found["phases"]["before"]["p99"] == 19
    assert found["recovery seconds"] == 3


def test_each_scenario_returns_to_the_usual_load() -> None:
    assert all(one.phases[0] is WARM_UP and one.phases[-1] is AFTER for one in SCENARIOS)
    assert all(phase.is_stress for one in SCENARIOS for phase in one.stress)
