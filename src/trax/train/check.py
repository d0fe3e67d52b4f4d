"""Whether the junctions of a route fit together, found out before anything runs. No I/O, no calls."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trax.errors import RouteError, did_you_mean
from trax.train.cancellation import Cancellation
from trax.train.declared import is_unit, name_of, parts_of
from trax.train.extract import Extract
from trax.train.keys import Key, key_of, produced_keys
from trax.train.memory import wanted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trax.train.memory import Want
    from trax.train.route import Route, Stop
    from trax.train.services import Services
    from trax.train.signature import Parameter

BUILT_IN = (logging.Logger, Cancellation)


def check_route(
    name: str,
    route: Route[Any, Any],
    *,
    input_type: Any,
    output_type: Any,
    services: Services | None = None,
    extra: Iterable[Any] = (),
) -> list[RouteError]:
    """All that is wrong with a route: CHAIN001 for an input nobody produces, CHAIN002 for the output."""
    return list(_Walk(name, services, extra).problems(route, input_type, output_type))


class _Walk:
    """The types there are at some point of a route."""

    def __init__(self, train: str, services: Services | None, extra: Iterable[Any]) -> None:
        self._train = train
        self._keys: set[Key] = {key_of(kind) for kind in BUILT_IN}
        self._names: set[str] = set()
        for kind in [*extra, *(services.kinds if services else ())]:
            self._add(kind, {key_of(kind)})

    def problems(self, route: Route[Any, Any], input_type: Any, output_type: Any) -> Iterator[RouteError]:
        self._add(input_type, produced_keys(input_type))
        for stop in route.stops:
            yield from self._problems_at(stop)
            gives = stop.does.target if isinstance(stop.does, Extract) else stop.does.signature.returns
            self._add(gives, produced_keys(gives))
        for missing in () if is_unit(output_type) else self._missing(wanted(output_type)):
            yield RouteError("CHAIN002", self._undelivered(name_of(missing.declared)))

    def _problems_at(self, stop: Stop) -> Iterator[RouteError]:
        if isinstance(stop.does, Extract) or not stop.is_checked:
            return
        for parameter in (*stop.does.constructor, *stop.does.signature.parameters):
            for missing in () if parameter.is_optional else self._missing(parameter.want):
                yield RouteError("CHAIN001", self._unproduced(stop, parameter, name_of(missing.declared)))

    def _missing(self, want: Want) -> Iterator[Want]:
        if want.parts:
            for part in want.parts:
                yield from self._missing(part)
        elif not self._keys.intersection(want.keys):
            yield want

    def _unproduced(self, stop: Stop, parameter: Parameter, missing: str) -> str:
        asks = f"junction {stop.does.name!r} asks for {missing} (parameter {parameter.name!r})"
        available = self._available(missing)
        return (
            f"train {self._train!r}: {asks}, but nothing before it produces one; "
            f"{available}{'' if available.endswith('?') else '.'} "
            f"If {missing} is a service, declare it first: app.provide({missing}, …)"
        )

    def _undelivered(self, missing: str) -> str:
        return (
            f"train {self._train!r} is to give {missing}, but no junction of its route produces one; "
            f"{self._available(missing)}"
        )

    def _available(self, missing: str) -> str:
        names = ", ".join(sorted(self._names)) or "nothing"
        if missing in self._names:
            return f"available: {names}, where {missing} is another type of the same name"
        return f"available: {names}{did_you_mean(missing, self._names)}"

    def _add(self, declared: Any, keys: set[Key]) -> None:
        self._keys |= keys
        self._names.update(name_of(part) for part in parts_of(declared) or (declared,) if not is_unit(part))
