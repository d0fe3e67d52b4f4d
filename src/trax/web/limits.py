"""How much visitors may take, and how long they may take it: many or slow, they leave room for others."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, fields, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Self

from trax.errors import DefinitionError, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX: Final = "TRAX_WEB_"
FEWEST_CONNECTIONS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class WebLimits:
    """The limits of one dashboard: `app.web(limits=WebLimits(…))`, or `TRAX_WEB_CONNECTIONS=200` and so on.

    Those of connections, heads, answers and idle time count where Trax serves the dashboard itself, with
    `trax run --web` or `trax dashboard`. Mounted in another application, its server has limits of its own.
    """

    connections: int = 1000
    """At once; never more than a quarter of the files that the process may open."""
    head_seconds: float = 10.0
    """How long a request line and headers may take to arrive; a tenth while all connections are taken."""
    body_seconds: float = 30.0
    """How long a body may take to arrive; a tenth while all connections are taken."""
    send_seconds: float = 30.0
    """How long a visitor may take none of its answer."""
    idle_seconds: int = 5
    """How long a connection stays open for another request."""
    head_bytes: int = 32 * 1024
    body_bytes: int = 1024 * 1024
    event_streams: int = 500
    """Pages that are open at once; never more than half of the connections."""
    event_streams_per_visitor: int = 30

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            may_be = (int, float) if field.type == "float" else int
            is_number = isinstance(value, may_be) and not isinstance(value, bool)
            if not is_number or not 0 < value < math.inf:
                kind = "number" if field.type == "float" else "whole number"
                raise DefinitionError(f"the limit {field.name} must be a {kind} above 0 (got {shown(value)})")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """From variables, such as `TRAX_WEB_HEAD_SECONDS=5`; what is not set has its default."""
        found = os.environ if environment is None else environment
        names = {field.name: f"{PREFIX}{field.name.upper()}" for field in fields(cls)}
        given: Any = {name: _number(found, text) for name, text in names.items() if text in found}
        return cls(**given)

    def for_process(self) -> Self:
        """What fits into this process: its jobs need files, too."""
        files = _most_files()
        most = self.connections if files is None else max(FEWEST_CONNECTIONS, files // 4)
        connections = min(self.connections, most)
        return replace(
            self, connections=connections, event_streams=min(self.event_streams, max(1, connections // 2))
        )


def _most_files() -> int | None:
    """How many files this process may open; None where there is no such limit."""
    try:
        resource = import_module("resource")
    except ImportError:  # not on every system
        return None
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if files == resource.RLIM_INFINITY else files


def _number(found: Mapping[str, str], variable: str) -> float:
    """A whole number stays one: what is counted has no fractions."""
    try:
        value = float(found[variable])
    except ValueError:
        raise DefinitionError(
            f"${variable} must be a number above 0 (got {shown(found[variable])})"
        ) from None
    return int(value) if value.is_integer() else value
