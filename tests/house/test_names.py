"""A function is named after what it returns or what it does, and a class has a name of its own."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import trax

PACKAGE = Path(trax.__file__).parent
DEFINING = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
ENDINGS = re.compile(r"(?:ed|en|ing|wn|eld|ept|old|elt|uilt|ought|aught)$")
IRREGULAR = {
    "begun",
    "bound",
    "done",
    "found",
    "gone",
    "got",
    "heard",
    "laid",
    "led",
    "left",
    "lent",
    "lost",
    "made",
    "meant",
    "met",
    "paid",
    "said",
    "sent",
    "shot",
    "spent",
    "spun",
    "stood",
    "stuck",
    "understood",
    "won",
    "worn",
    "wound",
}
PINNED = {"acting", "cancelled", "created", "unchecked", "wired"}
"""Public names, and attributes of records."""
VERBS = {"accept", "chown", "hold", "listen", "open", "ping", "seed", "shorten", "shutdown"}
NOUNS = {
    "children",
    "field",
    "housekeeping",
    "keyring",
    "len",
    "ring",
    "setting",
    "timing",
    "token",
}
OTHERS = {"own", "parking", "routing", "then", "underlying", "unindexed", "when"}
"""Adjectives and conjunctions, and nouns of the glossary."""
ALLOWED = PINNED | VERBS | NOUNS | OTHERS


@cache
def definitions() -> list[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every node that defines something, with its file."""
    return [
        (str(path.relative_to(PACKAGE)), node)
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, DEFINING)
    ]


def first_word(name: str) -> str:
    return name.strip("_").split("_")[0].lower()


def is_participle(word: str) -> bool:
    return bool(ENDINGS.search(word) or word in IRREGULAR) and word not in ALLOWED


def test_no_function_name_begins_with_a_participle() -> None:
    functions = {
        (module, node.name)
        for module, node in definitions()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }

    assert sorted(each for each in functions if is_participle(first_word(each[1]))) == []


def test_the_check_of_names_knows_participles() -> None:
    words = ["asked", "written", "looking", "found", "shown", "unknown", "held", "kept", "told", "built"]

    assert [word for word in words if is_participle(word)] == words
    assert not any(is_participle(word) for word in ("load", "hold", "field", "own"))


def test_no_allowed_word_is_left_over() -> None:
    used = {
        first_word(node.name)
        for _, node in definitions()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }

    assert used >= ALLOWED


def test_no_two_classes_share_a_name() -> None:
    homes = defaultdict[str, list[str]](list)
    for module, node in definitions():
        if isinstance(node, ast.ClassDef):
            homes[node.name].append(module)

    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}
