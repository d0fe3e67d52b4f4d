"""No statement looks at more pages because the tables are larger: what the app and a server send, counted.

`python -m bench plans` checks the same bounds beside 10 M records, 1 M manifests and 1 M entries.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import text

from bench import plans, scale
from bench.explain import explained_statements
from bench.history import Size
from trax.store import Store
from trax.testing.postgres import URL_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.support.databases import PostgresDatabases

SIZE = Size(runs=100_000, manifests=30_000, queued=30_000, letters=300, lines=1_000, groups=300)
"""A walk through a table of this size breaks every bound, and the planner decides as for a larger one."""
WALK = "SELECT count(*) FROM trax.manifest WHERE variance_seconds = 7"


@pytest.fixture
def explainable(postgres_databases: PostgresDatabases) -> Generator[str]:
    if URL_VARIABLE in os.environ:
        pytest.skip("the plans and the rows need a superuser")
    with postgres_databases.database() as url:
        if not has_auto_explain(url):
            pytest.skip("this PostgreSQL has no auto_explain")
        yield url


def has_auto_explain(url: str) -> bool:
    with psycopg.connect(url) as connection:
        try:
            connection.execute("LOAD 'auto_explain'")
        except psycopg.Error:
            return False
    return True


async def test_a_statement_costs_what_it_moves_beside_any_number_of_rows(explainable: str) -> None:
    scale.build(explainable, SIZE)

    found = await plans.measure(explainable, SIZE)

    assert [name for name, explained in found.items() if not explained] == []
    assert [fault for name, explained in found.items() for fault in plans.faults(name, explained)] == []


def test_a_walk_through_a_table_is_found(explainable: str) -> None:
    scale.build(explainable, Size(runs=1_000, manifests=70_000, queued=0, letters=1, lines=1, groups=1))
    with explained_statements() as log:
        store = Store(explainable)
        store.run(lambda connection: connection.execute(text(WALK)).scalar())
        store.close()

    (walk,) = [each for each in log.take() if each.statement == WALK]
    assert walk.ways_into("manifest") == {"Seq Scan"}
    assert walk.buffers > 2_000
    assert len(plans.faults("manifests", [walk])) == 2, "it looks at too much, and by no index"


async def test_full_groups_are_passed_at_the_cost_of_one_head_a_group(explainable: str) -> None:
    size = Size(runs=1_000, manifests=500, queued=40_000, letters=1, lines=1, groups=400)
    scale.build(explainable, size)

    pages = await plans.measure_full_groups(explainable, size)

    assert pages <= 20 * size.groups
