"""A row that somebody edited by hand is read as far as possible, reset, or reported: it holds up nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import make_url
from tests.support.edited_rows import OURS, Edit, EditedDatabase, edits, populate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@pytest.fixture
async def database(url: str) -> AsyncGenerator[EditedDatabase]:
    await populate(url)
    opened = EditedDatabase(url)
    yield opened
    opened.close()


@pytest.mark.parametrize("table", OURS)
async def test_whatever_a_column_holds_the_jobs_of_others_go_on(database: EditedDatabase, table: str) -> None:
    dialect = make_url(database.url).get_backend_name()

    problems = [problem for some in edits(dialect, table) for problem in await database.problems_of(*some)]

    assert problems == []


async def test_an_entry_of_a_manifest_that_does_not_exist_runs_without_it_and_is_reported(
    database: EditedDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    problems = await database.problems_of(Edit("work_queue", "manifest_id", "987654321"))

    assert problems == []
    assert "work_queue: column manifest_id had values that cannot be read" in caplog.text
