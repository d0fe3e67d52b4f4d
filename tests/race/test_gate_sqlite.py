"""Two processes at the gate of one file, where only the poll tells one what the other did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.race.test_gate import check
from tests.support.gate_load import GateLoad

if TYPE_CHECKING:
    from pathlib import Path

OFTEN = 0.1


async def test_two_servers_admit_no_more_than_the_limit(tmp_path: Path) -> None:
    load = GateLoad(tmp_path, f"sqlite:///{tmp_path}/trax.db", jobs=500, groups=5, limit=6, poll=OFTEN)

    await load.run(["run --concurrency 4"] * 2)

    check(load)
