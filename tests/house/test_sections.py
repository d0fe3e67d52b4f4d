"""Every page has its place: one of four sections, in the index of which it stands."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"
SECTIONS = ("tutorials", "how-to", "reference", "explanation")
OTHER_FOLDERS = {"pictures", "site"}
INDEX = "index.md"
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+\.md)(?:#[^)\s]+)?\)")
SITE = runpy.run_path(str(DOCS / "site" / "conf.py"))
PAGES = sorted(path for path in DOCS.rglob("*.md") if path.name != INDEX)
HOW_TO_PAGES = [path for path in PAGES if path.parent.name == "how-to"]


def linked_pages(index: Path) -> list[Path]:
    """The pages that an index links, other indexes left out."""
    found = [(index.parent / link).resolve() for link in LINK.findall(index.read_text(encoding="utf-8"))]
    return [page for page in found if page.is_relative_to(DOCS) and page.name != INDEX]


def entries_of_site(page: str) -> list[str]:
    """The table of contents that the site adds to a page."""
    source = [(DOCS.parent / f"{page}.md").read_text(encoding="utf-8")]
    before = len(source[0])
    SITE["add_contents"](None, page, source)
    return [line for line in source[0][before:].splitlines() if line and not line.startswith(("```", ":"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_stands_once_in_the_index_of_its_section_and_in_no_other(page: Path) -> None:
    places = {section: linked_pages(DOCS / section / INDEX).count(page) for section in SECTIONS}

    assert {section: count for section, count in places.items() if count} == {page.parent.name: 1}


def test_the_index_leads_to_every_section_and_there_is_no_other() -> None:
    text = (DOCS / INDEX).read_text(encoding="utf-8")
    linked = re.findall(r"\]\(([\w-]+)/index\.md\)", text)

    assert linked == list(SECTIONS)
    assert {path.name for path in DOCS.iterdir()} == {INDEX, *SECTIONS, *OTHER_FOLDERS}


def test_the_site_has_the_same_sections_and_their_pages() -> None:
    shown = entries_of_site("README")

    assert [entry for entry in shown if entry.endswith("/index")][1:] == [
        f"docs/{one}/index" for one in SECTIONS
    ]
    for section in SECTIONS:
        pages = [page.stem for page in PAGES if page.parent.name == section]
        assert sorted(entries_of_site(f"docs/{section}/index")) == sorted(pages)


@pytest.mark.parametrize("page", HOW_TO_PAGES, ids=lambda page: page.stem)
def test_a_how_to_page_is_named_by_the_verb_of_its_title(page: Path) -> None:
    title = page.read_text(encoding="utf-8").partition("\n")[0]

    verb = page.stem.partition("-")[0]

    assert re.match(rf"# {verb}\b", title, re.IGNORECASE), title
