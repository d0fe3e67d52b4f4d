"""A function is named after what it returns or what it does, and a class has a name of its own.

A test is named by state and outcome, in words that a reader would search for, and a test file after a module
or a behaviour.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

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

TESTS = Path(__file__).parents[1]
VAGUE_BEGINNINGS = {
    *("but", "everybody", "it", "its", "nobody", "of", "so", "somebody", "someone", "that", "these", "they"),
    *("those", "unless", "what", "whatever", "who", "whoever", "whom", "whose"),
}
"""A name that begins so has no subject."""
VAGUE_WORDS = {
    *("anew", "awry", "begun", "everybody", "hear", "heard", "hears", "let", "lets", "nobody", "nobodys"),
    *("nonsense", "said", "say", "saying", "says", "somebody", "someone", "stranger", "strangers", "take"),
    *("taken", "takes", "taking", "tell", "telling", "tells", "told", "took", "whatever", "whoever", "whom"),
    *("wish", "wishes"),
}
"""Better: the subject itself, and admit, claim, accept, report, show, return or notify."""
VAGUE_PHRASES = {
    *("all_the_same", "go_on", "goes_on", "here_and_now", "makes_no_sense", "passed_over", "put_off"),
    "tried_again",
}
"""Better: still, continue, direct, invalid, skipped, delayed, retried."""
VAGUE_CLASSES = {"Crowd", "Heard", "Held", "Past", "Ran", "Taken", "Told", "Town", "Yard"}
BEHAVIOURS = {
    *("cancellation", "claim", "collation", "command", "commit", "dependent", "dispatch", "extra"),
    *("fail_over", "forecast", "gate", "hostile", "isolation", "lane", "outage", "parking", "pooler"),
    *("promise", "recovery", "retirement", "shutdown", "sign_in", "stop_signal", "telemetry"),
    *("transaction", "typing", "unique_key", "watchdog", "withdrawal", "work_filter"),
}
"""What a test file may be named after beside modules: verbs of the glossary, and subjects of promises."""


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


@cache
def trees() -> dict[Path, ast.Module]:
    """The modules of the tests, below the folder of the tests."""
    return {
        path.relative_to(TESTS): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(TESTS.rglob("*.py"))
    }


def vague_parts(test: str) -> set[str]:
    """What a reader could not search for in the name of a test."""
    first, *others = words = test.removeprefix("test_").split("_")
    phrases = {phrase for phrase in VAGUE_PHRASES if f"_{phrase}_" in f"_{'_'.join(words)}_"}
    return ({first} & VAGUE_BEGINNINGS) | ({first, *others} & VAGUE_WORDS) | phrases


def test_test_names_have_no_vague_words() -> None:
    vague = {
        f"{path}::{node.name}": parts
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        if (parts := vague_parts(node.name))
    }

    assert vague == {}


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("test_what_is_told_is_told_once", {"what", "told"}),
        ("test_nobody_is_let_in", {"nobody", "let"}),
        ("test_a_run_here_and_now_goes_on", {"here_and_now", "goes_on"}),
        ("test_a_full_group_does_not_hold_back_another", set[str]()),
        ("test_it", {"it"}),
    ],
)
def test_the_check_of_test_names_finds_vague_parts(name: str, parts: set[str]) -> None:
    assert vague_parts(name) == parts


def test_test_classes_and_fixtures_have_plain_names() -> None:
    forbidden = VAGUE_CLASSES | {name.lower() for name in ("Town", "Yard")}
    vague = {
        f"{path}::{node.name}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, DEFINING) and node.name in forbidden
    }

    assert vague == set()


def singular(words: str) -> tuple[str, ...]:
    """The words of a name, each in the singular as far as its end shows that."""
    return tuple(
        re.sub(r"(?<=..)ies$", "y", word).removesuffix("s") if len(word) > 3 else word
        for word in words.split("_")
    )


@cache
def subjects() -> set[tuple[str, ...]]:
    """The words of every module and package of the source, and of every behaviour."""
    modules = {path.stem.strip("_") for path in PACKAGE.rglob("*.py")}
    packages = {path.parent.name for path in PACKAGE.rglob("__init__.py")}
    return {singular(name) for name in modules | packages | BEHAVIOURS}


def has_subject(stem: str) -> bool:
    """Whether the name of a test file begins or ends with the name of a module or a behaviour."""
    words = singular(stem.removeprefix("test_"))
    beginnings = {words[:length] for length in range(1, len(words) + 1)}
    ends = {words[start:] for start in range(len(words))}
    return not subjects().isdisjoint(beginnings | ends)


def test_test_files_are_named_after_a_module_or_a_behaviour() -> None:
    beside = {path.stem for folder in ("support", "../bench") for path in (TESTS / folder).glob("*.py")}
    unnamed = [
        str(path)
        for path in trees()
        if path.stem.startswith("test_") and path.parts[0] != "house"
        if not has_subject(path.stem) and path.stem.removeprefix("test_") not in beside
    ]

    assert unnamed == []


def test_the_check_of_test_files_knows_modules_and_behaviours() -> None:
    assert all(map(has_subject, ("test_job_dispatcher", "test_claims_ahead", "test_http_cancellation")))
    assert not any(map(has_subject, ("test_takes", "test_presence", "test_words")))


def test_no_behaviour_is_left_over() -> None:
    stems = [singular(path.stem.removeprefix("test_")) for path in trees() if path.stem.startswith("test_")]

    unused = {
        name
        for name in BEHAVIOURS
        if not any(
            stem[: len(words := singular(name))] == words or stem[-len(words) :] == words for stem in stems
        )
    }

    assert unused == set()
