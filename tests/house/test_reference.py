"""The pages of the reference are what the code says."""

from __future__ import annotations

import re

import pytest
from tests.support.reference_pages import FOLDER, NAMES_OF_PAGES, page


@pytest.mark.parametrize("name", NAMES_OF_PAGES)
def test_a_page_of_the_reference_is_current(name: str) -> None:
    made_by = "python -m tests.support.reference_pages"

    assert (FOLDER / name).read_text(encoding="utf-8") == page(name), f"run `{made_by}`"


def test_there_is_no_other_page() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(NAMES_OF_PAGES)


def test_every_argument_of_every_command_has_a_help_text() -> None:
    arguments = re.findall(r"^\* `([^`]+)`:(.*)$", page("commands.md"), re.MULTILINE)

    missing = [name for name, text in arguments if not re.sub(r"\*+\[[^]]*\]\*+", "", text).strip()]

    assert len(arguments) > 100
    assert missing == []
