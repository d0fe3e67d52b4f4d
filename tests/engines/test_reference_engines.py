"""The simplest engines keep the contract, and what breaks it is found out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.reference_engines import Elsewhere, Here
from tests.support.scenarios import CROWD, TURNS

from trax.testing.submitter_contract import (
    ContractBroken,
    Scenario,
    ScenarioHarness,
    Workspace,
    name_of,
    play,
)

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


@pytest.mark.parametrize("scenario", TURNS, ids=name_of)
@pytest.mark.parametrize("engine", [Elsewhere, Here])
async def test_the_reference_engines_keep_the_contract(
    engine: type[Elsewhere | Here], scenario: Scenario, postgres_url: str, tmp_path: Path
) -> None:
    await play(scenario, engine(tmp_path), Workspace(postgres_url, tmp_path, crowd=CROWD))


@pytest.fixture
def harness(tmp_path: Path) -> Generator[ScenarioHarness]:
    harness = ScenarioHarness(Here(tmp_path), Workspace("memory://", tmp_path))
    yield harness
    harness.close()


async def test_a_record_that_was_executed_twice_is_noticed(harness: ScenarioHarness) -> None:
    harness.site.log.write_text("began 7 twin 1\nbegan 7 twin 2\n", encoding="utf-8")

    with pytest.raises(ContractBroken, match="contract broken: no run is executed twice"):
        await harness.check_each_ran_once([])


async def test_a_job_that_never_completed_is_noticed(harness: ScenarioHarness) -> None:
    with pytest.raises(ContractBroken, match="contract broken: each job completes once"):
        await harness.check_each_ran_once(["lost"])


def test_how_many_ran_side_by_side_is_counted_as_the_jobs_have_noted_it(harness: ScenarioHarness) -> None:
    lines = ["began 1 a-1", "began 2 b-1", "ended 1 a-1", "began 3 a-2", "began 4 a-3", "ended 3 a-2"]
    harness.site.log.write_text("".join(f"{line} 9\n" for line in lines), encoding="utf-8")

    assert (harness.most_at_once(), harness.most_at_once("a-"), harness.most_at_once("c-")) == (3, 2, 0)
