"""The list of mutations fits the code: each guard is where it says, and the tests that it names exist."""

from __future__ import annotations

import ast
from collections import Counter

import pytest
from tests.mutations.mutation import ROOT, Mutation, StaleMutation, load_mutations

MUTATIONS = load_mutations()
PROMISES = range(1, 13)
BY_NAME = pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])


@BY_NAME
def test_a_mutation_changes_the_code_at_one_place(mutation: Mutation) -> None:
    text = (ROOT / mutation.file).read_text(encoding="utf-8")

    mutated = mutation.change(text)

    assert mutated != text
    if mutation.file.endswith(".py"):
        ast.parse(mutated)


@BY_NAME
def test_a_mutation_names_tests_that_exist(mutation: Mutation) -> None:
    assert mutation.tests
    for test in mutation.tests:
        file, _, name = test.partition("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        functions = {node.name for node in ast.walk(tree) if isinstance(node, FUNCTIONS)}
        assert name.partition("[")[0] in functions, test


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def test_names_of_mutations_differ_and_each_keeps_a_promise() -> None:
    names = Counter(mutation.name for mutation in MUTATIONS)

    assert [name for name, count in names.items() if count > 1] == []
    assert {mutation.promise for mutation in MUTATIONS} == set(PROMISES)


def test_a_mutation_whose_text_is_gone_or_not_unique_is_refused() -> None:
    mutation = MUTATIONS[0]

    with pytest.raises(StaleMutation, match="occurs 0 times"):
        mutation.change("nothing of it")
    with pytest.raises(StaleMutation, match="occurs 2 times"):
        mutation.change(2 * mutation.old)
