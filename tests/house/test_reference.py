"""The pages of the reference are what the code says."""

from __future__ import annotations

import re

import pytest
from tests.support.reference_pages import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_the_reference_is_current(name: str) -> None:
    made_by = "python -m tests.support.reference_pages"

    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), f"run `{made_by}`"


def test_the_index_lists_the_pages_generated_from_the_code() -> None:
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    _, generated = index.split("\n## Made from the code\n")

    assert re.findall(r"^- \[.*?\]\((.*?)\)", generated, re.MULTILINE) == list(PAGES)


def test_every_argument_of_every_command_has_a_help_text() -> None:
    arguments = re.findall(r"^\* `([^`]+)`:(.*)$", PAGES["commands.md"](), re.MULTILINE)

    missing = [name for name, text in arguments if not re.sub(r"\*+\[[^]]*\]\*+", "", text).strip()]

    assert len(arguments) > 100
    assert missing == []
