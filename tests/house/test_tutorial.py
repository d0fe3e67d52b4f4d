from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.typed_page import Typist

if TYPE_CHECKING:
    from tests.support.databases import PostgresDatabases

TUTORIAL = (Path(__file__).parent.parent.parent / "docs" / "tutorials" / "first-hour.md").read_text(
    encoding="utf-8"
)
PARTS = re.split(r"^(?=## (?:Limits|From a file to PostgreSQL)$)", TUTORIAL, flags=re.MULTILINE)
ITS_SERVER = "postgresql://trax@localhost/jobs"


def typist_at(part: int, folder: Path, server: str = ITS_SERVER) -> Typist:
    """Somebody who has done what stands before this part."""
    typist = Typist(folder, {ITS_SERVER: server})
    for earlier in PARTS[:part]:
        typist.save_files(earlier)
    if part:
        (folder / "exports").mkdir()
    return typist


@pytest.mark.parametrize("part", [0, 1])
def test_the_tutorial_shows_the_actual_output(part: int, tmp_path: Path) -> None:
    typist_at(part, tmp_path).type_in(PARTS[part])


def test_the_last_part_of_the_tutorial_works_on_postgresql(
    tmp_path: Path, postgres_databases: PostgresDatabases
) -> None:
    with postgres_databases.database(migrated=False) as address:
        typist_at(2, tmp_path, server=address).type_in(PARTS[2])


@pytest.mark.parametrize(
    "page",
    [
        "```console\n$ echo one two\none three\n```\n",
        "```console\n$ echo one && echo two\ntwo\none\n```\n",
        "```console\n$ false\n```\n",
        "```console\n$ true\ntrax: this fails\n```\n",
    ],
)
def test_a_page_that_shows_something_else_is_found_out(tmp_path: Path, page: str) -> None:
    with pytest.raises(AssertionError):
        Typist(tmp_path).type_in(page)


def test_a_number_that_names_a_row_means_the_row_that_is_there(tmp_path: Path) -> None:
    page = "```console\n$ echo '7  export  failed'\n5  export  …\n$ trax why 5\ntrax: … 7 …\n```\n"
    (tmp_path / "trax").write_text("#!/bin/sh\necho trax: $*\nexit 1\n")
    (tmp_path / "trax").chmod(0o755)

    typist = Typist(tmp_path)
    typist.environment["PATH"] = f"{tmp_path}:{typist.environment['PATH']}"
    typist.type_in(page)
