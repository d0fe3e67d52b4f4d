"""`WebLimits`: limits on connections, request sizes, timeouts and event streams; the budget for bodies."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, fields, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Self

from trax.clock import DURATION_FORMS, parse_duration
from trax.errors import DefinitionError, format_value

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX: Final = "TRAX_WEB_"
MIN_CONNECTIONS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class WebLimits:
    """The limits of one dashboard: `app.web(limits=WebLimits(…))`, or `TRAX_WEB_CONNECTIONS=200` and so on.

    Limits on connections, headers, responses and idle time apply where Trax runs the server itself, with
    `trax run --web` or `trax dashboard`. Mounted in another application, that server's limits apply.
    """

    connections: int = 1000
    """Open connections; at most a quarter of the process's open-file limit.

    While all are in use, each is closed after one response.
    """
    head_seconds: float = 10.0
    """Timeout for the request line and headers; a tenth of it while all connections are in use."""
    body_seconds: float = 30.0
    """Timeout for the request body; a tenth of it while all connections are in use."""
    send_seconds: float = 30.0
    """How long a client may read nothing of its response; a tenth of it while all connections are in use."""
    idle_seconds: int = 5
    """Keep-alive: how long an idle connection stays open."""
    head_bytes: int = 32 * 1024
    body_bytes: int = 1024 * 1024
    """The longest request body of an authenticated client."""
    login_body_bytes: int = 16 * 1024
    """The longest request body of a client that is not authenticated."""
    all_bodies_bytes: int = 32 * 1024 * 1024
    """All request bodies in memory at once; half of it for clients that nothing identifies."""
    event_streams: int = 500
    """Open event streams (live pages); at most half of the connections."""
    event_streams_per_visitor: int = 30

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            types = (int, float) if field.type == "float" else int
            is_number = isinstance(value, types) and not isinstance(value, bool)
            if not is_number or not 0 < value < math.inf:
                kind = "number" if field.type == "float" else "whole number"
                raise DefinitionError(
                    f"the limit {field.name} must be a {kind} above 0 (got {format_value(value)})"
                )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Read variables such as `TRAX_WEB_HEAD_SECONDS=5s`; unset ones keep their default."""
        variables = os.environ if environment is None else environment
        names = {field.name: f"{PREFIX}{field.name.upper()}" for field in fields(cls)}
        values: Any = {
            name: _parse_number(variables, text) for name, text in names.items() if text in variables
        }
        return cls(**values)

    def for_process(self) -> Self:
        """The limits reduced to the open-file limit of this process, since its jobs need files too."""
        files = _file_limit()
        most = self.connections if files is None else max(MIN_CONNECTIONS, files // 4)
        connections = min(self.connections, most)
        return replace(
            self, connections=connections, event_streams=min(self.event_streams, max(1, connections // 2))
        )


class BodyBudget:
    """The memory that all request bodies may take together."""

    def __init__(self, limits: WebLimits) -> None:
        self._most = limits.all_bodies_bytes
        self._used = {True: 0, False: 0}
        """Bytes by whether their client is known."""

    @property
    def total(self) -> int:
        return sum(self._used.values())

    def share(self) -> BodyShare:
        return BodyShare(self)

    def take(self, size: int, *, is_known: bool) -> bool:
        """Take some of the budget; False if there is not enough. Unknown clients leave half to the others."""
        is_over = self.total + size > self._most
        if is_over or (not is_known and self._used[False] + size > self._most // 2):
            return False
        self._used[is_known] += size
        return True

    def give_back(self, size: int, *, is_known: bool) -> None:
        self._used[is_known] -= size


class BodyShare:
    """What one request has taken of the budget, from its first byte until its response has ended."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._is_known = False
        self._taken = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._budget.give_back(self._taken, is_known=self._is_known)

    def take(self, size: int, *, is_known: bool) -> bool:
        if not self._budget.take(size, is_known=is_known):
            return False
        self._is_known = is_known
        self._taken += size
        return True


def _file_limit() -> int | None:
    """The open-file limit of this process; None if there is none."""
    try:
        resource = import_module("resource")
    except ImportError:  # not available on every system
        return None
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if files == resource.RLIM_INFINITY else files


def _parse_number(environment: Mapping[str, str], variable: str) -> float:
    """Parse a number, or a duration in seconds; integers stay integers, since counts have no fractions."""
    text, is_time = environment[variable], variable.endswith("_SECONDS")
    try:
        value = parse_duration(text).total_seconds() if is_time else float(text)
    except ValueError:
        kind = f"a duration above 0, such as {DURATION_FORMS}" if is_time else "a number above 0"
        raise DefinitionError(f"${variable} must be {kind} (got {format_value(text)})") from None
    return int(value) if value.is_integer() else value
