"""The scenarios of the contract for engines, with as few starts of a worker side as they allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import psycopg

from trax.testing.submitter_contract import SCENARIOS, ScenarioHarness, name_of, play
from trax.testing.submitter_contract import scenarios as contract

if TYPE_CHECKING:
    from trax import Trax
    from trax.engine.submitter import Submitter
    from trax.testing.submitter_contract import Engine, Scenario, Workspace

CROWD: Final = 105
"""Fifteen times what the limits let in at once."""

RESTARTING: Final[tuple[Scenario, ...]] = (
    contract.a_crash_of_the_worker_side_during_a_run_loses_nothing,
    contract.jobs_queued_while_the_worker_side_is_down_run_when_it_is_back,
)


async def all_that_leave_the_worker_side_alone(harness: ScenarioHarness) -> None:
    """One after the other, each with a new server side and no records, beside one worker side."""
    kept = KeptRunning(harness.engine)
    for scenario in SCENARIOS:
        if scenario in RESTARTING:
            continue
        try:
            await play(scenario, kept, harness.site)
        except BaseException as error:
            error.add_note(f"in the scenario {name_of(scenario)}")
            raise
        forget_records(harness.site)


TURNS: Final[tuple[Scenario, ...]] = (all_that_leave_the_worker_side_alone, *RESTARTING)
"""Together they play every scenario."""


class KeptRunning:
    """An engine whose worker side goes on when a scenario has ended."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._is_running = False

    def submitter(self, app: Trax) -> Submitter:
        return self._engine.submitter(app)

    async def start(self, site: Workspace) -> None:
        if not self._is_running:
            await self._engine.start(site)
            self._is_running = True

    async def stop(self) -> None:
        """Leave that to whoever owns the engine."""

    async def kill(self) -> None:
        raise AssertionError("a scenario that kills the worker side is not among these")


def forget_records(site: Workspace) -> None:
    with psycopg.connect(site.url, autocommit=True) as connection:
        connection.execute("TRUNCATE trax.metadata, trax.work_queue CASCADE")
    site.log.unlink()
