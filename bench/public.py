"""The chaos and pressure scenarios of the public queue benchmark, without containers: Trax and PgQueuer.

Names, phases and settings are those of https://github.com/hardbyte/postgresql-job-queue-benchmarking; the
phases are shorter. What a process writes is defined by `adapters/public_queue.py`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psycopg

from bench.children import ChildFailed
from bench.contenders import PGQUEUER, TRAX, available
from bench.figures import Sheet, row
from bench.options import Options
from bench.public_fleet import Fleet, Readers, Sample
from bench.runner import count_findings
from trax.testing.postgres import postgres_server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.contenders import Contender
    from trax.testing.postgres import PostgresServer

RATE: Final = 800
HIGH_LOAD: Final = 1.5
SECONDS: Final = 30
QUICK_SECONDS: Final = 3
WARM_UP_SHARE: Final = 1 / 3
IDLE_CONNECTIONS: Final = 300
READERS: Final = 4
KILLS_A_SECOND: Final = 2
KILL_EVERY: Final = 2 / 3
"""The share of a phase that a process which is killed repeatedly works between two kills."""
RECOVERED: Final = 0.9
"""Of the rate before the disturbance."""
DRAIN_SECONDS: Final = 90
"""Longer than either system takes to detect a killed process and retry its jobs."""
SETTINGS: Final = {
    "max_connections": "400",
    "shared_buffers": "256MB",
    "work_mem": "8MB",
    "maintenance_work_mem": "128MB",
}
WIDTHS: Final = (10, 10, 10, 11, 11, 10, 9, 9, 8, 10)


class Counts(NamedTuple):
    """Queries of a system's tables: how many jobs are left, and how many are done."""

    left: str
    done: str


COUNTS: Final = {
    TRAX.name: Counts(
        "SELECT (SELECT count(*) FROM trax.work_queue WHERE status = 'queued')"
        " + (SELECT count(*) FROM trax.metadata WHERE state IN ('pending', 'in_progress'))",
        "SELECT count(*) FROM trax.metadata WHERE state = 'completed'",
    ),
    PGQUEUER.name: Counts(
        "SELECT count(*) FROM pgqueuer", "SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'"
    ),
}


class Stage(NamedTuple):
    """What a phase may disturb."""

    fleet: Fleet
    server: PostgresServer
    seconds: float


Disturbance = Callable[[Stage], None]


def clean(stage: Stage) -> None:
    time.sleep(stage.seconds)


def high_load(stage: Stage) -> None:
    stage.fleet.offer(RATE * HIGH_LOAD)
    time.sleep(stage.seconds)
    stage.fleet.offer(RATE)


def idle_in_tx(stage: Stage) -> None:
    """Hold a transaction that has written: vacuum cannot remove rows that die meanwhile."""
    with psycopg.connect(stage.server.url) as connection:
        connection.execute("SELECT pg_current_xact_id()")
        time.sleep(stage.seconds)
        connection.rollback()


def active_readers(stage: Stage) -> None:
    with Readers(stage.server.url, stage.fleet.tables, READERS):
        time.sleep(stage.seconds)


def kill_worker(stage: Stage) -> None:
    stage.fleet.kill(0)
    time.sleep(stage.seconds)


def start_worker(stage: Stage) -> None:
    stage.fleet.start(0)
    time.sleep(stage.seconds)


def repeated_kill(stage: Stage) -> None:
    end = time.monotonic() + stage.seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, stage.seconds * KILL_EVERY / 2))
        stage.fleet.kill(0)
        stage.fleet.start(0)


def postgres_restart(stage: Stage) -> None:
    """Away for the first half."""
    stage.server.stop("fast")
    time.sleep(stage.seconds / 2)
    stage.server.start()
    time.sleep(stage.seconds / 2)


def pg_backend_kill(stage: Stage) -> None:
    """Several times per second, terminate all sessions that are active or in a transaction."""
    query = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid() AND state IN ('active', 'idle in transaction')"
    )
    end = time.monotonic() + stage.seconds
    with psycopg.connect(stage.server.url, autocommit=True) as connection:
        while time.monotonic() < end:
            connection.execute(query.encode())
            time.sleep(1 / KILLS_A_SECOND)


def pool_exhaustion(stage: Stage) -> None:
    idle = [psycopg.connect(stage.server.url, autocommit=True) for _ in range(IDLE_CONNECTIONS)]
    time.sleep(stage.seconds)
    for connection in idle:
        connection.close()


class Phase(NamedTuple):
    name: str
    act: Disturbance
    length: float = 1
    """As a multiple of the usual rate."""

    @property
    def is_stress(self) -> bool:
        return self.act is not clean


WARM_UP: Final = Phase("warm-up", clean, WARM_UP_SHARE)
BEFORE: Final = Phase("before", clean)
AFTER: Final = Phase("after", clean)


class Scenario(NamedTuple):
    name: str
    stress: Sequence[Phase]
    processes: int = 1

    @property
    def phases(self) -> list[Phase]:
        return [WARM_UP, BEFORE, *self.stress, AFTER]


SCENARIOS: Final = (
    Scenario("idle_in_tx_saturation", (Phase("idle-in-tx", idle_in_tx, 2),)),
    Scenario("sustained_high_load", (Phase("high-load", high_load),)),
    Scenario("event_delivery_burst", (Phase("high-load", high_load, 2),)),
    Scenario("active_readers", (Phase("active-readers", active_readers),)),
    Scenario(
        "chaos_crash_recovery", (Phase("kill-worker", kill_worker), Phase("start-worker", start_worker)), 2
    ),
    Scenario("chaos_repeated_kills", (Phase("repeated-kill", repeated_kill),), 2),
    Scenario("chaos_postgres_restart", (Phase("postgres-restart", postgres_restart),)),
    Scenario("chaos_pg_backend_kill", (Phase("pg-backend-kill", pg_backend_kill),)),
    Scenario("chaos_pool_exhaustion", (Phase("pool-exhaustion", pool_exhaustion),)),
)


def main(options: Options) -> None:
    seconds = options.sized(SECONDS, QUICK_SECONDS)
    names = {one.name.lower() for one in (TRAX, PGQUEUER)} & set(options.only)
    contenders = available((TRAX, PGQUEUER), names)
    chosen = [one for one in SCENARIOS if one.name in options.only] or SCENARIOS
    minutes = sum(_length(one, seconds) for one in chosen) * len(contenders) / 60
    print(f"public: {RATE} jobs/s offered, phases of {seconds} s; takes about {minutes:.0f} minutes")
    sheet = Sheet("public", options)
    row(
        "",
        "before/s",
        "stress/s",
        "after/s",
        "p99 before",
        "p99 stress",
        "p99 after",
        "dead",
        "left",
        "lost",
        "findings",
        widths=WIDTHS,
    )
    for scenario in chosen:
        for contender in contenders:
            try:
                found = measure(scenario, contender, seconds)
            except (ChildFailed, psycopg.Error) as error:
                print(f"  {scenario.name}, {contender.name} has no figures: {error}")
                continue
            sheet.figures.setdefault(scenario.name, {})[contender.name] = found
            sheet.versions[contender.name] = contender.version or "?"
            _show(f"{scenario.name}, {contender.name}", found)
    _judge(sheet)
    sheet.save()


def _judge(sheet: Sheet) -> None:
    """What no scenario may cost Trax."""
    ours = [systems[TRAX.name] for systems in sheet.figures.values() if TRAX.name in systems]
    for name, what in (("lost", "accepted jobs lost"), ("findings", "findings of verify")):
        if known := [found[name] for found in ours if name in found]:
            sheet.goal_at_most(f"{what}, in {len(known)} scenarios", [sum(known)], 0)


def _length(scenario: Scenario, seconds: float) -> float:
    """Including the time to start a server, to drain and to stop."""
    return sum(phase.length for phase in scenario.phases) * seconds + 10


def measure(scenario: Scenario, contender: Contender, seconds: float) -> dict[str, Any]:
    """Run one system through one scenario, on a server of its own."""
    with (
        postgres_server(durable=True, settings=SETTINGS) as server,
        Fleet(contender, server.url, scenario.processes) as fleet,
    ):
        fleet.offer(RATE)
        fleet.start_all()
        spans = [_run(phase, Stage(fleet, server, phase.length * seconds)) for phase in scenario.phases]
        fleet.offer(0)
        left, drain_seconds = _drain(server.url, COUNTS[contender.name])
        exits = fleet.stop()
        done = _count(server.url, COUNTS[contender.name].done)
        findings = count_findings(server.url) if contender.name == TRAX.name else None
        samples, accepted = fleet.samples, fleet.accepted
    return (
        summarize(spans, samples)
        | {
            "accepted": accepted,
            "done": done,
            "left": left,
            "lost": max(0, accepted - done - left),
            "drain seconds": drain_seconds,
            "exits": exits,
        }
        | ({} if findings is None else {"findings": findings})
    )


class Span(NamedTuple):
    """The time of a phase, and the dead rows at its end."""

    phase: Phase
    began: float
    ended: float
    dead_rows: int


def _run(phase: Phase, stage: Stage) -> Span:
    began = time.monotonic()
    phase.act(stage)
    return Span(phase, began, time.monotonic(), stage.fleet.dead_rows())


def summarize(spans: Sequence[Span], samples: Sequence[Sample]) -> dict[str, Any]:
    """The figures of each phase, and how long after the last disturbance the rate had recovered."""
    phases = {span.phase.name: _phase_figures(span, samples) for span in spans if span.phase is not WARM_UP}
    before = phases[BEFORE.name]["rate"]
    return {"phases": phases, "recovery seconds": _recovery_seconds(spans[-1], samples, before)}


def _phase_figures(span: Span, samples: Sequence[Sample]) -> dict[str, Any]:
    inside = [one for one in samples if span.began <= one.middle < span.ended]
    return {
        "seconds": span.ended - span.began,
        "offered": _rate(span, inside, "enqueue_rate"),
        "rate": _rate(span, inside, "completion_rate"),
        "p50": _latest(inside, "claim_p50_ms"),
        "p99": _latest(inside, "claim_p99_ms"),
        "depth": _latest(inside, "queue_depth"),
        "dead rows": span.dead_rows,
        "is stress": span.phase.is_stress,
    }


def _rate(span: Span, samples: Sequence[Sample], metric: str) -> float:
    """Of all processes together; a process that is down did nothing in that second."""
    found = [one for one in samples if one.metric == metric]
    seconds = max(Counter(one.instance for one in found).values(), default=0)
    return sum(one.value for one in found) / max(seconds, int(span.ended - span.began), 1)


def _latest(samples: Sequence[Sample], metric: str) -> float | None:
    """The worst value of all processes; times are over the last 30 s."""
    latest = {one.instance: one.value for one in samples if one.metric == metric}
    return max(latest.values(), default=None)


def _recovery_seconds(after: Span, samples: Sequence[Sample], before: float) -> float | None:
    """None if it never recovered."""
    rates: dict[int, float] = {}
    for one in samples:
        if one.metric == "completion_rate" and after.began <= one.middle < after.ended:
            second = int(one.middle - after.began)
            rates[second] = rates.get(second, 0) + one.value
    return next((float(second) for second, rate in sorted(rates.items()) if rate >= RECOVERED * before), None)


def _drain(url: str, counts: Counts) -> tuple[int, float]:
    """Wait until no job is left, up to the maximum; return how many are left, and the seconds."""
    began = time.monotonic()
    while (left := _count(url, counts.left)) and time.monotonic() - began < DRAIN_SECONDS:
        time.sleep(0.25)
    return left, time.monotonic() - began


def _count(url: str, query: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(query.encode()).fetchone()
    return int(found[0]) if found else 0


def worst_stress(found: dict[str, Any]) -> dict[str, Any]:
    """The phase with a disturbance in which the fewest jobs were done."""
    stress = [phase for phase in found["phases"].values() if phase["is stress"]]
    return min(stress, key=lambda phase: phase["rate"])


def _show(name: str, found: dict[str, Any]) -> None:
    shown = [found["phases"][BEFORE.name], worst_stress(found), found["phases"][AFTER.name]]
    rates = [f"{phase['rate']:,.0f}" for phase in shown]
    times = ["-" if phase["p99"] is None else f"{phase['p99']:,.1f} ms" for phase in shown]
    row(
        name,
        *rates,
        *times,
        f"{shown[1]['dead rows']:,}",
        f"{found['left']}",
        f"{found['lost']}",
        f"{found.get('findings', '-')}",
        widths=WIDTHS,
    )


if __name__ == "__main__":
    main(Options())
