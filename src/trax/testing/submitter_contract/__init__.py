"""Contract tests for submitters: scenarios that every submitter must pass.

engine.py     what you supply: your submitter, and how to start, stop and kill its worker side; `Workspace`:
              a database, a folder, and the app that both sides load
harness.py    run the server side of a scenario, and read the records and job events
scenarios.py  one test each

    @pytest.mark.parametrize("scenario", SCENARIOS, ids=name_of)
    async def test_my_engine_keeps(scenario: Scenario, postgres_url: str, tmp_path: Path) -> None:
        await play(scenario, MyEngine(), Workspace(postgres_url, tmp_path))
"""

from __future__ import annotations

from trax.testing.submitter_contract.engine import Engine, EngineProcess, ProcessEngine, Workspace
from trax.testing.submitter_contract.harness import ContractBroken, ScenarioHarness
from trax.testing.submitter_contract.scenarios import SCENARIOS, Scenario, name_of, play

__all__ = [
    "SCENARIOS",
    "ContractBroken",
    "Engine",
    "EngineProcess",
    "ProcessEngine",
    "Scenario",
    "ScenarioHarness",
    "Workspace",
    "name_of",
    "play",
]
