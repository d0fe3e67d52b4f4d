"""What is promised is listed, in order, and there."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import re
import typing
from pathlib import Path

import pytest

import trax
from trax import errors

SOURCE = Path(trax.__file__).parent


@pytest.mark.parametrize("module", ["trax", "trax.errors", "trax.testing"])
def test_the_promised_names_are_sorted_and_importable(module: str) -> None:
    promised = importlib.import_module(module)

    assert promised.__all__ == sorted(promised.__all__)
    assert [name for name in promised.__all__ if not hasattr(promised, name)] == []
    assert promised.__doc__


def test_every_error_is_importable_from_one_module() -> None:
    bases = {
        node.name: {getattr(base, "id", getattr(base, "attr", "")) for base in node.bases}
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    found = {"TraxError"}
    while more := {name for name, parents in bases.items() if parents & found} - found:
        found |= more

    assert found - set(errors.__all__) == set()
    assert set(errors.__all__) - found == {"FieldError"}


@pytest.mark.parametrize(
    ("error", "base"),
    [
        ("NotFound", LookupError),
        ("UnknownSetting", LookupError),
        ("UnknownTrain", LookupError),
        ("DefinitionError", ValueError),
        ("InvalidArgument", ValueError),
        ("InvalidInput", ValueError),
        ("InvalidSetting", ValueError),
        ("InvalidUrl", ValueError),
        ("RunTimedOut", TimeoutError),
        ("WaitTimedOut", TimeoutError),
        ("StoreUnavailable", ConnectionError),
        ("RemoteLost", ConnectionError),
        ("EndpointUnreachable", ConnectionError),
    ],
)
def test_an_error_is_also_the_standard_one_of_its_kind(error: str, base: type[Exception]) -> None:
    assert issubclass(getattr(errors, error), base)


def test_common_errors_are_importable_from_trax() -> None:
    common = {
        *("Conflict", "EntryCancelled", "InvalidInput", "NotFound", "RunCancelled", "StoreUnavailable"),
        *("TraxError", "UnknownTrain", "WaitTimedOut"),
    }

    assert common - set(trax.__all__) == set()


APP_INTERNALS = {"StoredSession"}
"""What the dashboard asks of `app.sessions` for every request."""


def test_the_results_of_public_verbs_are_importable_from_trax() -> None:
    app = trax.Trax("memory://")
    nouns = (
        *(app.manifests, app.groups, app.work_queue, app.executions, app.dead_letters, app.workers),
        *(app.settings, app.stats, app.audit, app.sessions, app.logs, app.sync),
    )

    returned = {
        name
        for kind in (trax.Trax, trax.Cursor, *map(type, nouns))
        for verb, function in inspect.getmembers(kind, inspect.isfunction)
        if not verb.startswith("_")
        for name in re.findall(r"\b[A-Z]\w+", str(inspect.unwrap(function).__annotations__.get("return")))
    }

    standard = {*vars(typing), *vars(contextlib), "AsgiApplication", "In", "None", "Out"}
    assert returned - set(trax.__all__) - standard - APP_INTERNALS == set()
    app.close()
