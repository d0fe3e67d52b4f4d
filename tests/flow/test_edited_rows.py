"""A row edited by hand is read as far as possible, reset, or reported: it stops no other job."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.support.edited_rows import OURS, Edit, EditedDatabase, edits, populate
from tests.support.kept_rows import DIALECTS, KeptRows, module_database

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture(scope="module", params=DIALECTS)
def database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[EditedDatabase]:
    with module_database(request, tmp_path_factory, request.param) as url:
        asyncio.run(populate(url))
        with KeptRows(url) as kept:
            yield EditedDatabase(url, kept)


@pytest.mark.parametrize("table", OURS)
async def test_an_edited_row_does_not_stop_other_jobs(database: EditedDatabase, table: str) -> None:
    problems = [
        problem for some in edits(database.dialect, table) for problem in await database.problems_of(*some)
    ]

    assert problems == []


async def test_an_entry_of_a_manifest_that_does_not_exist_runs_without_it_and_is_reported(
    database: EditedDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    problems = await database.problems_of(Edit("work_queue", "manifest_id", "987654321"))

    assert problems == []
    assert "work_queue: column manifest_id had values that cannot be read" in caplog.text
