"""What ARCHITECTURE.md lists is what the code has: topics, resources, and where the dialects differ."""

from __future__ import annotations

import ast
import re
from functools import cached_property
from pathlib import Path

import trax
from trax.app.app import Trax
from trax.events import Topic

PACKAGE = Path(trax.__file__).parent
PAGE = (PACKAGE.parent.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
QUOTED = re.compile(r"`([\w./-]+)`")
DIALECTS = {"SQLITE", "POSTGRESQL"}
HOME_OF_DIALECTS = "store/dialect.py"


def section(heading: str) -> str:
    _, found = PAGE.split(f"\n## {heading}\n")
    return found.split("\n## ")[0]


def depends_on_dialect(node: ast.AST) -> bool:
    """A comparison with the name of a dialect, or a call of `is_sqlite`."""
    match node:
        case ast.Compare(left=left, comparators=others):
            return any(isinstance(each, ast.Name) and each.id in DIALECTS for each in (left, *others))
        case ast.Call(func=ast.Name(id="is_sqlite") | ast.Attribute(attr="is_sqlite")):
            return True
        case _:
            return False


def branches_by_module() -> dict[str, int]:
    """How often each module asks for the dialect."""
    modules = {path: ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}
    counts = {path: sum(map(depends_on_dialect, ast.walk(tree))) for path, tree in modules.items()}
    return {str(path.relative_to(PACKAGE)): count for path, count in counts.items() if count}


def test_every_module_that_asks_for_the_dialect_is_listed_with_the_reason() -> None:
    listed = set(QUOTED.findall(section("Two dialects")))

    branching = branches_by_module()

    assert HOME_OF_DIALECTS in branching
    assert branching.keys() - listed == set()


def test_every_topic_has_a_row() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", section("Who wakes whom"), re.MULTILINE)

    assert set(rows) == {topic.value for topic in Topic}


def test_every_resource_of_the_app_is_named() -> None:
    resources = {
        name
        for name, value in vars(Trax).items()
        if isinstance(value, cached_property) and not name.startswith("_")
    }

    named = set(re.findall(r"`app\.(\w+)`", section("The app: `app/`")))

    assert len(resources) >= 12
    assert resources - named == set()
