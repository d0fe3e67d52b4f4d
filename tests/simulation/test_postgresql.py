"""The promises hold on PostgreSQL, too, where servers make quick visits and faults happen on the way.

`.venv/bin/python -m tests.simulation.soak --postgresql --hours 100` looks further, as `make simulate` does.
"""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.fault_proxy import Fault
from tests.support.simulated_world import run_world

from trax.inspect.simulation import EventLog
from trax.store import quick_gate
from trax.worker.dispatcher import Dispatcher

if TYPE_CHECKING:
    from tests.support.databases import PostgresDatabases

SEEDS = range(1, 5)
MADE = (Fault.REFUSED, Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.CUT)


@pytest.fixture
def visits(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many visits of each kind were made."""
    made = Counter[str]()
    read, finish = quick_gate.read_visit, Dispatcher._finish_and_dispatch  # pyright: ignore[reportPrivateUsage]

    def note_quick(*arguments: Any) -> quick_gate.QuickVisit:
        visit = read(*arguments)
        made["quick" if visit.is_plain else "stepped aside"] += 1
        made["admitted by quick visits"] += len(visit.claimed)
        return visit

    async def note_results(self: Dispatcher, request: Any) -> Any:
        made["with results"] += 1
        return await finish(self, request)

    monkeypatch.setattr(quick_gate, "read_visit", note_quick)
    monkeypatch.setattr(Dispatcher, "_finish_and_dispatch", note_results)
    return made


def test_every_promise_holds_on_postgresql(
    postgres_databases: PostgresDatabases, visits: Counter[str]
) -> None:
    faults, admissions = Counter[Fault](), 0

    for seed in SEEDS:
        with postgres_databases.database() as url:
            world = run_world(seed, "brief", url=url)
        faults += world.proxy_faults
        admissions += world.promises.admissions

    assert admissions > 200
    assert [fault for fault in MADE if not faults[fault]] == [], faults
    wanted = ("quick", "stepped aside", "admitted by quick visits", "with results")
    assert [name for name in wanted if not visits[name]] == [], visits


def test_the_same_seed_gives_the_same_events_on_postgresql(postgres_databases: PostgresDatabases) -> None:
    digests: set[str] = set()
    for _ in range(2):
        log = EventLog(keep=None)
        with postgres_databases.database() as url:
            run_world(2, "brief", event_log=log, url=url)
        digests.add(sha256(log.format().encode()).hexdigest())

    assert len(digests) == 1
