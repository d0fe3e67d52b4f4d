"""What every way of executing elsewhere has to keep, as scenarios that any submitter can be put through.

site         where a scenario happens: a database, a folder, and the app that both sides load
engine       what you supply: your submitter, and how its far side is started, stopped and killed
yard         the near side, and what can be seen of both
scenarios    one promise each

    @pytest.mark.parametrize("scenario", SCENARIOS, ids=name_of)
    async def test_my_engine_keeps(scenario: Scenario, postgres_url: str, tmp_path: Path) -> None:
        await play(scenario, MyEngine(), Site(postgres_url, tmp_path))
"""

from __future__ import annotations

from trax.testing.submitter_contract.engine import Engine, FarProcess, ProcessEngine
from trax.testing.submitter_contract.scenarios import SCENARIOS, Scenario, name_of, play
from trax.testing.submitter_contract.site import Site
from trax.testing.submitter_contract.yard import ContractBroken, Yard

__all__ = [
    "SCENARIOS",
    "ContractBroken",
    "Engine",
    "FarProcess",
    "ProcessEngine",
    "Scenario",
    "Site",
    "Yard",
    "name_of",
    "play",
]
