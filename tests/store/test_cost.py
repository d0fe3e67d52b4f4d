"""A job costs PostgreSQL what docs/reference/cost.md says: statements, transactions, row versions and WAL."""

from __future__ import annotations

import pytest
from tests.store.test_plan_bounds import has_auto_explain

from bench import cost
from trax.store import postgresql
from trax.testing.postgres import postgres_server

HOT, WAL = 4, -1
WAL_TOLERANCE = 0.2
"""Equal runs differ by up to 15 %: when pages split, and what the server logs for itself meanwhile."""
OWN_WAL = 1_500
"""What the server itself may log in a minute, for its standbys and checkpoints."""
HOT_TOLERANCE = 0.1
"""It depends on how many rows are on a page."""


@pytest.mark.postgresql
def test_a_job_costs_the_figures_of_the_page_under_any_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgresql, "IDLE_SECONDS", 0)  # as if each call found its connection idle for long
    page = cost.read_table(cost.PAGE.read_text(encoding="utf-8"))
    with postgres_server(settings=cost.SERVER) as server:
        if not has_auto_explain(server.url):
            pytest.skip("this PostgreSQL has no auto_explain, which tells the statements")
        counted = cost.read_table(cost.build_table(cost.measure(server.url)))

    assert list(counted) == list(page)
    exact = {name: figures[:HOT] + figures[HOT + 1 : WAL] for name, figures in counted.items()}
    assert exact == {name: figures[:HOT] + figures[HOT + 1 : WAL] for name, figures in page.items()}, (
        "a job costs more or less than docs/reference/cost.md says; if so, run `python -m bench cost`"
    )
    for name, figures in counted.items():
        assert figures[HOT] == pytest.approx(page[name][HOT], abs=HOT_TOLERANCE), name
        allowed = OWN_WAL if "idle" in name else WAL_TOLERANCE * page[name][WAL]
        assert figures[WAL] == pytest.approx(page[name][WAL], abs=allowed), name


def test_the_table_is_read_as_it_is_written() -> None:
    table = cost.build_table({"a job, in all": cost.Cost(4, 3, 144_800, 200, 201, 81, 0)})

    assert cost.read_table(table) == {"a job, in all": [4, 3, 2, 2.01, 0.81, 0, 1448]}
