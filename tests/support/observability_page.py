"""The page of loggers, keys, spans and metrics, made from the code that uses them."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.reference import code, table

import trax
from trax.worker import otel

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(trax.__file__).parent
KEYS = {
    "train": "the name of a train",
    "metadata_id": "the number of a run",
    "manifest": "the external id of a manifest",
    "manifests": "the external ids of manifests",
    "attempt": "which try of its job a run was",
    "worker": "the number of a worker",
    "entry_id": "the number of an entry",
    "dead_letters": "the numbers of dead letters",
    "lost_workers": "how many workers were found silent",
    "submitter": "the name of a submitter",
    "loop": "the name of a duty",
    "hook": "the name of a hook",
    "setting": "the name of a setting",
    "sessions": "how many sessions of the database were ended",
    "duration_seconds": "how long it took",
}
"""What a line of the log may carry beside its text."""

SPANS = (
    ("the train", "CONSUMER", "one run of it from the queue; `trax.worker` is where"),
    ("the train", "INTERNAL", "one `app.run` of it"),
    ("the junction", "INTERNAL", "one junction of such a run, if it has more than one"),
    ("`queue` and the train", "PRODUCER", "one `app.queue` or `queue_many`, also of `app.sync`"),
    (code(otel.MANAGER_SPAN), "INTERNAL", "a cycle of the manager that changed something"),
    (code(otel.DISPATCHER_SPAN), "INTERNAL", "a cycle of the gate that let something through"),
)
ATTRIBUTES = {
    "trax.train": "the name of the train",
    "trax.metadata_id": "the number of the run",
    "trax.external_id": "the name that the entry and all its runs share",
    "trax.manifest": "the external id of the manifest, if one asked for it",
    "trax.group": "the name of the group, if it has one",
    "trax.attempt": "which try it is, from 1",
    "trax.worker": "the number of the worker that ran it",
    "trax.state": "how the run ended, as its record says; missing if it could not be recorded",
    "trax.reason": "of the event `cancelled`: why",
    "trax.junction": "the name of the junction",
    "trax.entries": "how many entries were queued",
    "trax.queued": "of a cycle: how many entries were written",
    "trax.dead_letters": "of a cycle: how many manifests gave up",
    "trax.timed_out": "of a cycle: how many runs were asked to stop",
    "trax.reaped": "of a cycle: how many runs were failed from outside",
    "trax.admitted": "of a cycle: how many were let through",
}


def page() -> str:
    return f"""\
# Logs, spans and metrics

[Monitor servers](../how-to/monitor-servers.md) says what they are for and how to get them.

## Loggers

{table(("Logger", "Where it is"), loggers())}
## Keys

What lines carry beside their text, as attributes of the record:

{glossary("Key", checked(KEYS, keys()))}
## Spans

{table(("Name", "Kind", "What it is"), SPANS)}
{glossary("Attribute", checked(ATTRIBUTES, attributes()))}
## Metrics

{measured("Counters", otel.COUNTERS)}
{measured("Histograms", otel.HISTOGRAMS)}
{measured("Gauges", otel.GAUGES)}"""


def glossary(head: str, words: dict[str, str]) -> str:
    return table((head, "Meaning"), ((code(word), meaning) for word, meaning in words.items()))


def measured(kind: str, told: tuple[otel.Metric, ...]) -> str:
    rows = (
        (code(one.name), code(one.unit), " ".join(map(code, one.attributes)), one.description) for one in told
    )
    return table((kind, "Unit", "Attributes", "Meaning"), rows)


def loggers() -> list[tuple[str, str]]:
    """Every logger of the package, with the first words of the module it is in."""
    found: dict[str, str] = {}
    for path, tree in modules():
        name = next(filter(None, map(logger_made, tree.body)), None)
        if name is not None:
            found.setdefault(name.replace("__name__", module_name(path)), first_words(tree))
    return [(code(name), words) for name, words in sorted(found.items())]


def logger_made(statement: ast.stmt) -> str | None:
    match statement:
        case ast.Assign(
            targets=[ast.Name(id="logger")],
            value=ast.Call(func=ast.Attribute(attr="getLogger"), args=[given]),
        ):
            return str(ast.literal_eval(given)) if isinstance(given, ast.Constant) else "__name__"
        case _:
            return None


def keys() -> set[str]:
    """Every key that is given as `extra`, or put together under that name."""
    return {key for _, tree in modules() for node in ast.walk(tree) for key in keys_in(node)}


def keys_in(node: ast.AST) -> Iterator[str]:
    match node:
        case (
            ast.keyword(arg="extra", value=ast.Dict() as given)
            | ast.Assign(targets=[ast.Name(id="extra")], value=ast.Dict() as given)
            | ast.Assign(targets=[ast.Attribute(attr="_extra")], value=ast.Dict() as given)
        ):
            yield from words_of(given)
        case ast.FunctionDef(name="extra" | "_extra"):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Dict):
                    yield from words_of(inner)
        case _:
            pass


def words_of(given: ast.Dict) -> list[str]:
    return [str(key.value) for key in given.keys if isinstance(key, ast.Constant)]


def attributes() -> set[str]:
    """Every attribute that a span is given."""
    texts = {
        str(node.value)
        for node in ast.walk(ast.parse(Path(str(otel.__file__)).read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    others = {one.name for one in otel.METRICS} | {otel.MANAGER_SPAN, otel.DISPATCHER_SPAN}
    return {text for text in texts if re.match(r"trax\.\w", text)} - others


def checked(told: dict[str, str], used: set[str]) -> dict[str, str]:
    """What the page tells is what the code uses, all of it and nothing else."""
    assert set(told) == used, f"not told: {sorted(used - set(told))}; not used: {sorted(set(told) - used)}"
    return told


@cache
def modules() -> list[tuple[Path, ast.Module]]:
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in sorted(PACKAGE.rglob("*.py"))]


def module_name(path: Path) -> str:
    return ".".join(("trax", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


def first_words(tree: ast.Module) -> str:
    return (ast.get_docstring(tree) or "").partition("\n")[0]
