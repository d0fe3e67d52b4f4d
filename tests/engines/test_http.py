"""HTTP workers keep the contract, with and without a database at the far side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest
from tests.support.http_engine import HttpEngine
from tests.support.scenarios import CROWD, TURNS

from trax.testing.submitter_contract import Scenario, Workspace, name_of, play

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("scenario", TURNS, ids=name_of)
@pytest.mark.parametrize("mode", ["database", "response"])
async def test_http_workers_keep_the_contract(
    mode: Literal["database", "response"], scenario: Scenario, postgres_url: str, tmp_path: Path
) -> None:
    await play(scenario, HttpEngine(mode), Workspace(postgres_url, tmp_path, crowd=CROWD))
