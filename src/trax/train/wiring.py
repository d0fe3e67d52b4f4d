"""Find the arguments of a callable by type: in memory, among services, and built-in values."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trax.errors import WiringError, did_you_mean
from trax.train.cancellation import Cancellation
from trax.train.declared import name_of
from trax.train.memory import MISSING, Memory, TypeRequest, recall
from trax.train.provision import RunServices

if TYPE_CHECKING:
    from trax.train.services import Services
    from trax.train.signature import Parameter


class Wiring:
    """Finds arguments for one run: from memory, services, built-in values and defaults."""

    def __init__(
        self, train: str, memory: Memory, token: Cancellation, services: Services | None, *, is_blocking: bool
    ) -> None:
        self._train = train
        self._memory = memory
        self._token = token
        self._run_services = services and RunServices(services, token, self.fill, is_blocking=is_blocking)

    async def fill(self, parameters: tuple[Parameter, ...], owner: str) -> tuple[list[Any], dict[str, Any]]:
        """The positional and keyword arguments for a callable."""
        arguments = [await self._find(each, owner) for each in parameters if not each.is_keyword]
        keywords = {each.name: await self._find(each, owner) for each in parameters if each.is_keyword}
        return arguments, keywords

    async def close(self, error: BaseException | None) -> BaseException | None:
        """Close the services of the run; return the error that it ends with now."""
        return await self._run_services.close(error) if self._run_services else error

    async def _find(self, parameter: Parameter, owner: str) -> Any:
        want = parameter.request
        value = recall(self._memory, want)
        if value is MISSING and self._run_services and not want.parts:
            value = await self._run_services.get(want)
        if value is MISSING:
            value = self._builtin_value(want)
        if value is MISSING:
            value = parameter.default
        if value is MISSING:
            raise self._not_found(parameter, owner)
        return value

    def _builtin_value(self, request: TypeRequest) -> Any:
        if request.declared is logging.Logger:
            return logging.getLogger(self._train)
        return self._token if request.declared is Cancellation else MISSING

    def _not_found(self, parameter: Parameter, owner: str) -> WiringError:
        missing = name_of(_find_missing(self._memory, parameter.request).declared)
        known = {name_of(kind): kind for kind in self._memory if isinstance(kind, type)}
        needs = f"{owner} needs {missing} (parameter {parameter.name!r})"
        return WiringError(
            f"train {self._train!r}: {needs}, which was not found; "
            f"available: {', '.join(sorted(known)) or 'nothing'}{did_you_mean(missing, known)}"
        )


def _find_missing(memory: Memory, request: TypeRequest) -> TypeRequest:
    """The first element of a requested tuple that memory does not have, else the request itself."""
    return next(
        (_find_missing(memory, part) for part in request.parts if recall(memory, part) is MISSING), request
    )
