"""Full modules: none too long, and more code than imports."""

from __future__ import annotations

import ast
from pathlib import Path

import trax

PACKAGE = Path(trax.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
MOST_LINES = 500
MOST_IMPORTS = 0.11
"""Of all lines that are not blank."""


def test_no_module_is_longer_than_the_ceiling() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}

    assert {str(path): length for path, length in lengths.items() if length > MOST_LINES} == {}


def test_imports_are_a_small_part_of_the_lines() -> None:
    texts = [path.read_text(encoding="utf-8") for path in MODULES]

    lines = sum(bool(line.strip()) for text in texts for line in text.splitlines())
    imports = sum(map(import_lines, texts))

    assert imports / lines < MOST_IMPORTS


def import_lines(text: str) -> int:
    """The lines of all import statements but `from __future__`, which imports nothing."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    return sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in nodes
        if not (isinstance(node, ast.ImportFrom) and node.module == "__future__")
    )
