"""Check, before anything runs, that the junctions of a route fit together (CHAIN001, CHAIN002)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trax.errors import RouteError, did_you_mean
from trax.train.cancellation import Cancellation
from trax.train.declared import is_unit, name_of, parts_of
from trax.train.extract import Extract
from trax.train.keys import Key, key_of, static_keys
from trax.train.memory import request_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trax.train.memory import TypeRequest
    from trax.train.route import Route, RouteStop
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
    """All problems of a route: CHAIN001 for an input that nothing produces, CHAIN002 for the output."""
    return list(_RouteChecker(name, services, extra).problems(route, input_type, output_type))


class _RouteChecker:
    """Collects the types that are available at each step of a route."""

    def __init__(self, train: str, services: Services | None, extra: Iterable[Any]) -> None:
        self._train = train
        self._keys: set[Key] = {key_of(kind) for kind in BUILT_IN}
        self._names: set[str] = set()
        for kind in [*extra, *(services.kinds if services else ())]:
            self._add(kind, {key_of(kind)})

    def problems(self, route: Route[Any, Any], input_type: Any, output_type: Any) -> Iterator[RouteError]:
        self._add(input_type, static_keys(input_type))
        for stop in route.stops:
            yield from self._problems_at(stop)
            returns = (
                stop.action.target if isinstance(stop.action, Extract) else stop.action.signature.returns
            )
            self._add(returns, static_keys(returns))
        for missing in () if is_unit(output_type) else self._find_missing(request_for(output_type)):
            yield RouteError("CHAIN002", self._output_message(name_of(missing.declared)))

    def _problems_at(self, stop: RouteStop) -> Iterator[RouteError]:
        if isinstance(stop.action, Extract) or not stop.is_checked:
            return
        for parameter in (*stop.action.constructor, *stop.action.signature.parameters):
            for missing in () if parameter.is_optional else self._find_missing(parameter.request):
                yield RouteError("CHAIN001", self._input_message(stop, parameter, name_of(missing.declared)))

    def _find_missing(self, request: TypeRequest) -> Iterator[TypeRequest]:
        if request.parts:
            for part in request.parts:
                yield from self._find_missing(part)
        elif not self._keys.intersection(request.keys):
            yield request

    def _input_message(self, stop: RouteStop, parameter: Parameter, missing: str) -> str:
        needs = f"junction {stop.action.name!r} needs {missing} (parameter {parameter.name!r})"
        available = self._available(missing)
        return (
            f"train {self._train!r}: {needs}, but no earlier junction produces it; "
            f"{available}{'' if available.endswith('?') else '.'} "
            f"If {missing} is a service, declare it first: app.provide({missing}, …)"
        )

    def _output_message(self, missing: str) -> str:
        return (
            f"train {self._train!r} must return {missing}, but no junction of its route produces it; "
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
