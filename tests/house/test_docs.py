"""What the pages show works, and what they draw is what the code does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import preloaded, snippets
from tests.support.snippets import has_snippets

from trax.records.states import DEAD_LETTER_MOVES, QUEUE_MOVES, STATE_MOVES

if TYPE_CHECKING:
    from collections.abc import Mapping

PROJECT = Path(__file__).parent.parent.parent
PAGES = sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")])
EXAMPLES_OF_TESTS = sorted((PROJECT / "examples").glob("test_*.py"))
EXAMPLES = sorted(set((PROJECT / "examples").glob("*.py")) - set(EXAMPLES_OF_TESTS))
DRAWING = re.compile(r"^```mermaid\nstateDiagram-v2\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
ARROW = re.compile(r"^\s*(\w+) --> (\w+)", re.MULTILINE)

with_snippets = list(filter(has_snippets, PAGES))


@pytest.mark.parametrize("page", with_snippets, ids=lambda page: str(page.relative_to(PROJECT)))
def test_the_snippets_of_a_page_run(page: Path, tmp_path: Path) -> None:
    ended = run_page(page, tmp_path)

    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_page_whose_snippets_fail_is_found_out(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nfrom trax import Nothing\n```\n", encoding="utf-8")

    ended = run_page(page, tmp_path)

    assert ended.returncode == 1
    assert f'{page}", line 2' in ended.stderr


def run_page(page: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", snippets.__name__, page, folder]
    return preloaded.run(command, cwd=PROJECT)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))

    for target, anchor in LINK.findall(text):
        linked = page.parent / target if target else page
        assert linked.exists(), target
        assert not anchor or slug(anchor) in anchors(linked), f"{target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """The names by which others may point into a page: those of its headings."""
    return {slug(heading) for heading in HEADING.findall(FENCED.sub("", page.read_text(encoding="utf-8")))}


def slug(heading: str) -> str:
    """A heading as it stands in an address. How many hyphens stand in a row is up to who renders it."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\- ]", "", heading).strip().lower())


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    ended = preloaded.run([sys.executable, "-W", "error", example], cwd=tmp_path)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout


@pytest.mark.parametrize("example", EXAMPLES_OF_TESTS, ids=lambda example: example.name)
def test_the_tests_of_an_example_pass(example: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", example],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout


def test_there_are_snippets_and_examples() -> None:
    assert PROJECT / "README.md" in with_snippets
    assert EXAMPLES
    assert EXAMPLES_OF_TESTS


def moves(table: Mapping[Any, frozenset[Any]]) -> set[tuple[str, str]]:
    return {(str(old), str(new)) for old, successors in table.items() for new in successors}


def test_the_states_drawn_are_the_states_in_code() -> None:
    page = (PROJECT / "docs" / "reference" / "states.md").read_text(encoding="utf-8")

    drawn = [set(ARROW.findall(drawing)) for drawing in DRAWING.findall(page)]

    assert drawn == [moves(STATE_MOVES), moves(QUEUE_MOVES), moves(DEAD_LETTER_MOVES)]


@pytest.mark.parametrize("name", ["guarantees", "threat-model"])
def test_a_page_names_tests_that_exist(name: str) -> None:
    page = (PROJECT / "docs" / "explanation" / f"{name}.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)

    assert len(named) >= 20
    for file, test in named:
        assert re.search(rf"def {test}\(", (PROJECT / file).read_text(encoding="utf-8")), f"{file}::{test}"


def test_every_promise_names_a_test() -> None:
    page = (PROJECT / "docs" / "explanation" / "guarantees.md").read_text(encoding="utf-8")

    assert len(re.findall(r"^## \d+\. ", page, re.MULTILINE)) == 12
    for promise in re.split(r"^## ", page, flags=re.MULTILINE)[1:13]:
        assert "::test_" in promise, promise.splitlines()[0]
