"""What classes and functions say of themselves, as rows of a page: names, types, defaults and meanings."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

UNITS = {
    "days": timedelta(days=1),
    "h": timedelta(hours=1),
    "min": timedelta(minutes=1),
    "s": timedelta(seconds=1),
}
REQUIRED = object()
SPELLED_OUT = {
    "In_co": "Any",
    "OnMisfire": "str | Misfire",
    "Start": "str",
    "Hook": "Callable",
    "TextDuration": "timedelta",
}


class Field(NamedTuple):
    """One attribute or option, with the words that stand beneath it in its class."""

    name: str
    type: str
    meaning: str


def fields_of(kind: type) -> list[Field]:
    """Those of a class and of what it builds on, first the inherited ones."""
    found: dict[str, Field] = {}
    for each in reversed(_lineage(kind)):
        body = _tree(each).body
        for here, below in zip(body, [*body[1:], None], strict=True):
            if isinstance(here, ast.AnnAssign) and isinstance(here.target, ast.Name):
                name = here.target.id
                found[name] = Field(name, _type(here.annotation), _words(below, f"{each.__name__}.{name}"))
    return list(found.values())


def defaults_of(kind: type) -> dict[str, Any]:
    """What counts where nothing is said."""
    assert is_dataclass(kind)
    return {
        each.name: REQUIRED if each.default is MISSING else each.default
        for each in fields(kind)
        if each.default_factory is MISSING
    }


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    first, *others = ("| " + " | ".join(row) + " |\n" for row in (list(heads), *map(list, rows)))
    return "".join((first, "|" + "---|" * len(list(heads)) + "\n", *others))


def fields_table(kind: type, defaults: Mapping[str, Any] | None = None) -> str:
    """One row a field; with its default, where defaults are given."""
    told = fields_of(kind)
    if defaults is None:
        rows = ((code(one.name), code(one.type), one.meaning) for one in told)
        return table(("Name", "Type", "Meaning"), rows)
    rows = ((code(one.name), code(one.type), shown(defaults.get(one.name)), one.meaning) for one in told)
    return table(("Name", "Type", "Default", "Meaning"), rows)


def signature(name: str, function: Callable[..., Any]) -> str:
    """How it is called, with the types as they are written."""
    said: list[str] = []
    star = False
    for one in inspect.signature(function).parameters.values():
        if one.name == "self":
            continue
        if one.kind is one.KEYWORD_ONLY and not star:
            said.append("*")
        star = star or one.kind in {one.KEYWORD_ONLY, one.VAR_POSITIONAL}
        prefix = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        default = "" if one.default is one.empty else f" = {one.default!r}"
        said.append(f"{prefix}{one.name}: {one.annotation}{default}")
    return f"{name}({', '.join(said)})"


def code(text: str) -> str:
    """As code in a cell, where a bar would end the cell."""
    return f"`{text}`".replace("|", r"\|")


def shown(value: Any) -> str:
    """A default as a person writes it."""
    if value is REQUIRED:
        return "(required)"
    if isinstance(value, timedelta):
        unit, length = next((unit, length) for unit, length in UNITS.items() if value >= length)
        return f"{value / length:g} {unit}"
    return "none" if value == () else f"`{value}`"


def _lineage(kind: type) -> list[type]:
    """The class, and what it builds on as it is written: a TypedDict does not remember that."""
    home = vars(sys.modules[kind.__module__])
    bases = [home[base.id] for base in _tree(kind).bases if isinstance(base, ast.Name)]
    ours = [base for base in bases if base.__module__.startswith("trax.")]
    return [kind, *(each for base in ours for each in _lineage(base))]


def _tree(kind: type) -> ast.ClassDef:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    return tree


def _type(annotation: ast.expr) -> str:
    """As it is written, but for names that mean something in their own module only."""
    written = ast.unparse(annotation).replace(" | Unset", "")
    return re.sub(r"\w+", lambda word: SPELLED_OUT.get(word[0], word[0]), written)


def _words(below: ast.stmt | None, place: str) -> str:
    match below:
        case ast.Expr(value=ast.Constant(value=str(words))):
            return " ".join(words.split())
        case _:
            raise AssertionError(f"{place} needs a word about what it means, in a docstring beneath it")
