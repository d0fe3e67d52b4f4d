"""The head of a package names all its modules, and pages about the code name files that exist."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

import trax

PROJECT = Path(__file__).parent.parent.parent
PACKAGE = Path(trax.__file__).parent
HEADS = sorted(PACKAGE.rglob("__init__.py"))
LISTED = re.compile(r"^ *(\w+(?:\.py|/)) {2,}\S", re.MULTILINE)
MENTIONED = re.compile(r"`([\w.-]+(?:\.py|/))`")
PAGES = ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/reference/glossary.md"]
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
QUOTED = re.compile(r"`([\w.-][\w./-]*)`")
FILE = re.compile(r"/|\.(py|md|toml|yaml|js|html|sql)$")
MADE_BY_MAKE = {"dist/docs"}
VERBS = [
    "acknowledge",
    "activate",
    "admit",
    "announce",
    "cancel",
    "claim",
    "declare",
    "enqueue",
    "finish",
    "give up",
    "hand over",
    "park",
    "promote",
    "requeue",
    "rerun",
    "rescue",
    "retire",
    "retry",
    "seed",
    "snooze",
    "trigger",
    "verify",
    "withdraw",
]


def head_of(package: Path) -> str:
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""


def contents(package: Path) -> set[str]:
    modules = {path.name for path in package.glob("*.py")} - {"__init__.py"}
    folders = {f"{path.name}/" for path in package.iterdir() if path.is_dir()} - {"__pycache__/"}
    return modules | folders


@pytest.mark.parametrize("head", HEADS, ids=lambda head: str(head.parent.relative_to(PACKAGE.parent)))
def test_the_head_of_a_package_lists_what_is_in_it(head: Path) -> None:
    listed = LISTED.findall(head_of(head.parent))

    assert sorted(listed) == sorted(contents(head.parent))


@pytest.mark.parametrize("head", HEADS, ids=lambda head: str(head.parent.relative_to(PACKAGE.parent)))
def test_a_head_mentions_only_what_exists(head: Path) -> None:
    mentioned = set(MENTIONED.findall(head_of(head.parent)))

    assert mentioned <= contents(head.parent)


def test_every_module_begins_with_what_it_is() -> None:
    modules = [path for path in PACKAGE.rglob("*.py") if "versions" not in path.parts]

    without = [path for path in modules if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]

    assert without == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_about_the_code_names_files_that_exist(name: str) -> None:
    text = FENCED.sub("", (PROJECT / name).read_text(encoding="utf-8"))
    quoted = {path for path in QUOTED.findall(text) if FILE.search(path) and not path.startswith("NNNN_")}

    missing = {path for path in quoted - MADE_BY_MAKE if not is_there(path)}

    assert len(quoted) >= 30
    assert missing == set()


def is_there(path: str) -> bool:
    folders = [PROJECT, PACKAGE, PACKAGE / "web" / "templates"]
    return any((folder / path).exists() for folder in folders)


def test_every_package_has_a_section_in_the_architecture() -> None:
    page = (PROJECT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    headings = "\n".join(re.findall(r"^## .*$", page, re.MULTILINE))

    packages = [name for name in contents(PACKAGE) if name.endswith("/")]

    assert len(packages) >= 14
    assert [name for name in packages if f"`{name}`" not in headings] == []


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_leads_to_its_file(verb: str) -> None:
    """The glossary names a file, and its name or its line in the head of its package has the verb."""
    glossary = (PROJECT / "docs/reference/glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \*\*(.+?)\*\* \|.*\| (.+?) \|$", glossary, re.MULTILINE)
    paths = [path for word, where in rows if word.lower().startswith(verb) for path in QUOTED.findall(where)]

    found = [path for path in paths if verb.replace(" ", "_") in path or verb in head_line(PACKAGE / path)]

    assert found != []


def head_line(path: Path) -> str:
    """What the head of its package says about a module."""
    [line] = re.findall(rf"^ *{re.escape(path.name)} {{2,}}(.*)$", head_of(path.parent), re.MULTILINE)
    return line


def is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def is_logger(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "logger"


MODULES = {
    str(path.relative_to(PACKAGE)): ast.parse(path.read_text(encoding="utf-8")).body
    for path in PACKAGE.rglob("*.py")
}


def test_a_module_imports_for_types_in_one_place() -> None:
    assert [name for name, body in MODULES.items() if sum(map(is_for_types, body)) > 1] == []


def test_a_logger_directly_follows_the_imports() -> None:
    before = [
        (name, body[index - 1])
        for name, body in MODULES.items()
        for index, node in enumerate(body)
        if is_logger(node)
    ]

    assert len(before) >= 40
    assert [
        name
        for name, node in before
        if not (isinstance(node, ast.Import | ast.ImportFrom) or is_for_types(node))
    ] == []


def test_the_text_about_a_constant_directly_follows_it() -> None:
    apart = [
        f"{name}:{text.lineno}"
        for name, body in MODULES.items()
        for before, text in pairwise(body)
        if is_text(text) and text.lineno != (before.end_lineno or 0) + 1
    ]

    assert apart == []
