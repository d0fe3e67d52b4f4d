"""What can be called from outside, found by looking: methods in Python, commands, and their parameters."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, is_typeddict

import trax
from trax import Trax
from trax.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RESOURCES = sorted(name for name, what in vars(Trax).items() if isinstance(what, cached_property))
WITH_KEYWORDS = (
    *("trax.app.app", "trax.records.nouns", "trax.engine.enqueue", "trax.remote.http.endpoint"),
    *("trax.schedule.declaration", "trax.train", "trax.worker.app_context"),
)
"""Modules that have the options of methods as a TypedDict."""
MORE = re.compile(r"Unpack\[(\w+)\]")


@dataclass(frozen=True)
class Parameter:
    name: str
    is_required: bool
    is_positional: bool


def app_methods(app: Trax) -> dict[str, Callable[..., Any]]:
    """Every public method of the app and of what it hands out, by its name below `app`."""
    found = dict(_public_methods(app))
    for resource in RESOURCES:
        if not resource.startswith("_"):
            found |= {f"{resource}.{name}": what for name, what in _public_methods(getattr(app, resource))}
    return dict(sorted(found.items()))


def public_callables() -> dict[str, Callable[..., Any]]:
    """Every class and function of `trax`, and what hangs below it: `cron.daily`, `exclude.dates`."""
    found: dict[str, Callable[..., Any]] = {}
    for name in trax.__all__:
        what = getattr(trax, name)
        if callable(what):
            found[name] = what
        if not inspect.isclass(what):
            found |= {f"{name}.{inner}": method for inner, method in _public_methods(what)}
    return found


def _public_methods(owner: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in dir(owner):
        what = None if name.startswith("_") or _is_property(owner, name) else getattr(owner, name)
        is_imported = inspect.ismodule(owner) and getattr(what, "__module__", None) != owner.__name__
        if inspect.isroutine(what) and not is_imported:
            yield name, what


def _is_property(owner: Any, name: str) -> bool:
    return isinstance(inspect.getattr_static(owner, name), property | cached_property)


def parameters_of(function: Callable[..., Any]) -> list[Parameter]:
    """All parameters; `**options` stands for the keys of its TypedDict."""
    found: list[Parameter] = []
    for each in inspect.signature(function).parameters.values():
        if each.kind is each.VAR_KEYWORD:
            more = MORE.search(str(each.annotation))
            names = _keys_of(more[1]) if more else ()
            found += [Parameter(name, is_required=False, is_positional=False) for name in names]
        else:
            is_positional = each.kind in {each.POSITIONAL_ONLY, each.VAR_POSITIONAL}
            is_required = each.default is each.empty and each.kind is not each.VAR_POSITIONAL
            found.append(Parameter(each.name, is_required=is_required, is_positional=is_positional))
    return found


def _keys_of(name: str) -> list[str]:
    """The keys of the TypedDict with this name, which is imported for the type checker only."""
    if name == "SettingKeywords":
        return sorted(Settings.model_fields)
    for module in map(import_module, WITH_KEYWORDS):
        if is_typeddict(found := getattr(module, name, None)):
            return sorted(found.__annotations__)
    raise LookupError(f"{name} is in none of WITH_KEYWORDS")
