"""A log line begins with its subject, so that it is found by searching for it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import trax

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PACKAGE = Path(trax.__file__).parent
LOGGERS = {"logger", "self._log", "_outages"}
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
WITH_ID = (
    "app database entry group login loop manifest run runs service session setting submitter table train "
    "user worker process"
)
"""Subjects that are followed by their id or name."""
WITHOUT_ID = {
    "dashboard",
    "dead letters",
    "event loop",
    "event stream",
    "fork",
    "heartbeat",
    "HTTP endpoint",
    "listener",
    "live view",
    "manifests",
    "pool",
    "process",
    "results",
    "retry policy",
    "run log",
    "server",
    "submitters",
    "telemetry",
    "workers",
}
"""Parts of a process, and several records at once."""
SUBJECT = re.compile(
    rf"(worker )?({'|'.join(WITH_ID.split())}|SQS message) (from )?%[rs]|loop \w+:|({'|'.join(WITHOUT_ID)})\b"
)
COMPOSED = {
    ("cli/run.py", "warning"): "warnings about the database, which begin with its address",
    ("cli/serve.py", "text"): "what a command says on a terminal too",
    ("cli/serve.py", "warning"): "the same warnings",
    ("worker/capture.py", ""): "the text of the caller",
    ("worker/hooks.py", "%s failed"): "the train and its hook",
    ("worker/deadlines.py", "%s has not stopped"): "the run, as its text says",
}
"""Messages whose first words are not in the call."""


def test_each_log_line_begins_with_its_subject() -> None:
    found = {
        (path.relative_to(PACKAGE).as_posix(), message)
        for path in PACKAGE.rglob("*.py")
        for message in messages(ast.parse(path.read_text(encoding="utf-8")))
        if not SUBJECT.match(message)
    }

    def is_composed(module: str, message: str, of: Iterable[tuple[str, str]] = COMPOSED) -> bool:
        return any(module == other and message.startswith(start) for other, start in of)

    assert {each for each in found if not is_composed(*each)} == set()
    assert {each for each in COMPOSED if not any(is_composed(*one, of=[each]) for one in found)} == set()


def test_a_line_without_a_subject_is_found() -> None:
    lines = 'logger.info("retired %s manifests", 3)\nlogger.info("run %s failed", 7)\nlogger.info("a worker")'

    assert [bool(SUBJECT.match(text)) for text in messages(ast.parse(lines))] == [False, True, False]


def messages(tree: ast.AST) -> Iterator[str]:
    """The format of each log call; of one that is given by a name, the text assigned to that name."""
    for function in [each for each in ast.walk(tree) if isinstance(each, ast.Call)]:
        called = function.func
        if not isinstance(called, ast.Attribute) or called.attr not in LEVELS:
            continue
        if ast.unparse(called.value) not in LOGGERS:
            continue
        skipped = (called.attr == "log") + (ast.unparse(called.value) != "logger")
        yield from _texts(function.args[skipped], tree, function.lineno)


def _texts(value: ast.expr, tree: ast.AST, line: int) -> Iterator[str]:
    match value:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr():
            yield "".join(
                str(each.value) if isinstance(each, ast.Constant) else "%s" for each in value.values
            )
        case ast.IfExp():
            yield from _texts(value.body, tree, line)
            yield from _texts(value.orelse, tree, line)
        case ast.BinOp():
            yield from _texts(value.left, tree, line)
        case ast.Name():
            assigned = [
                each
                for each in ast.walk(tree)
                if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == value.id
            ]
            before = [each for each in assigned if each.lineno < line]
            if before:
                yield from _texts(max(before, key=lambda each: each.lineno).value, tree, line)
            else:
                yield value.id
        case _:
            yield ast.unparse(value)
