"""A quick visit to the gate admits exactly what a deciding one would, or nothing, in every state.

`TRAX_GATE_SEEDS=300 .venv/bin/pytest tests/flow/test_gate_ways.py` looks further; so does `make simulate`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.support.gate_world import SEEDS, visit_gate

if TYPE_CHECKING:
    from tests.support.databases import PostgresDatabases


def test_quick_and_deciding_visits_admit_the_same_entries(postgres_databases: PostgresDatabases) -> None:
    counts = Counter[str]()

    for seed in SEEDS:
        with postgres_databases.database() as url:
            counts += visit_gate(url, seed)

    assert counts["quick visits"] > 50, counts
    assert counts["admitted by quick visits"] > 50, counts
    assert counts["quick visits that stepped aside"] > 20, counts
    assert counts["visits that waited"] > 20, counts
