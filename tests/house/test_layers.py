"""Imports point down only, and each foreign library has one home."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import trax

PROJECT = Path(__file__).parent.parent.parent
PACKAGE = Path(trax.__file__).parent
HOMES = {
    "store": {"alembic", "psycopg", "sqlalchemy", "sqlite3"},
    "worker": {"opentelemetry"},
    "web": {"fastapi", "jinja2", "prometheus_client", "starlette", "uvicorn"},
    "cli": {"cyclopts", "rich"},
}
MODULES = sorted(PACKAGE.rglob("*.py"))


def imported(module: Path) -> set[str]:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def test_imports_point_down_only() -> None:
    linter = Path(sys.executable).with_name("lint-imports")

    checked = subprocess.run(
        [linter, "--no-logo"], cwd=PROJECT, capture_output=True, text=True, check=False
    )  # in a process of its own: it sets up logging for itself

    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(PACKAGE)))
def test_a_foreign_library_is_used_only_in_its_home(module: Path) -> None:
    layer = module.relative_to(PACKAGE).parts[0]

    elsewhere = {name for home, libraries in HOMES.items() if home != layer for name in libraries}

    assert imported(module) & elsewhere == set()


def test_the_layers_drawn_are_the_layers_enforced() -> None:
    configuration = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    [contract] = configuration["tool"]["importlinter"]["contracts"]
    page = (PROJECT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    [drawing] = re.findall(r"## The layers\n\n```\n(.*?)```", page, re.DOTALL)

    drawn = [re.split(r"  ", line)[0] for line in drawing.splitlines()]

    enforced = [re.sub(r"[()]", "", layer) for layer in contract["layers"]]
    assert drawn == [layer for layer in enforced if layer != "__main__"]
