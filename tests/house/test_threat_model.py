"""Every line of the threat model names tests that attack it, and they exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).parent.parent.parent
PAGE = PROJECT / "docs" / "explanation" / "threat-model.md"
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
HEADING = re.compile(r"^\*\*(.+)\*\*$", re.MULTILINE)
ATTACKERS = (
    "On the network, without an account",
    "With a viewer's account",
    "With an operator's account",
    "With access to the database",
    "With the secret of an HTTP worker",
    "With write access to a broker",
)


def threat_model() -> str:
    text = PAGE.read_text(encoding="utf-8")
    return text.split("\n## What an attacker cannot do\n")[1]


def rows_of(section: str) -> list[tuple[str, str]]:
    """What somebody cannot do, and the cell that names its tests."""
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [(cannot.strip(), tests) for cannot, tests in cells if cannot.strip() != "Cannot"]


@cache
def functions_of(path: str) -> frozenset[str]:
    tree = ast.parse((PROJECT / path).read_text(encoding="utf-8"))
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(function.name for function in functions)


def sections() -> dict[str, list[tuple[str, str]]]:
    parts = HEADING.split(threat_model())
    return {name: rows_of(text) for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def test_every_attacker_has_lines() -> None:
    found = sections()

    assert set(ATTACKERS) <= found.keys()
    assert all(found.values())
    assert "|\n\n|" not in threat_model()  # an empty line ends a table


def test_every_line_names_a_test() -> None:
    without = [cannot for rows in sections().values() for cannot, tests in rows if not TEST.search(tests)]

    assert without == []


def test_the_tests_that_lines_name_exist() -> None:
    named = [each for rows in sections().values() for _, tests in rows for each in TEST.findall(tests)]
    missing = [f"{path}::{name}" for path, name in named if name not in functions_of(path)]

    assert missing == []
    assert len(named) > 40


def test_nothing_else_stands_where_a_test_belongs() -> None:
    for rows in sections().values():
        for cannot, tests in rows:
            assert TEST.sub("", tests).strip(", ") == "", cannot
