"""Finding what a callable asks for: in memory, among the services, among what every run has."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trax.errors import WiringError, did_you_mean
from trax.train.cancellation import Cancellation
from trax.train.declared import name_of
from trax.train.memory import MISSING, Memory, Want, recall
from trax.train.provision import Provision

if TYPE_CHECKING:
    from trax.train.services import Services
    from trax.train.signature import Parameter


class Wiring:
    """Everything one run can answer a request with, beyond the plain look into its memory."""

    def __init__(
        self, train: str, memory: Memory, token: Cancellation, services: Services | None, *, is_blocking: bool
    ) -> None:
        self._train = train
        self._memory = memory
        self._token = token
        self._provision = services and Provision(services, token, self.fill, is_blocking=is_blocking)

    async def fill(self, parameters: tuple[Parameter, ...], owner: str) -> tuple[list[Any], dict[str, Any]]:
        """The arguments a callable is called with, by position and by name."""
        arguments = [await self._find(each, owner) for each in parameters if not each.is_keyword]
        keywords = {each.name: await self._find(each, owner) for each in parameters if each.is_keyword}
        return arguments, keywords

    async def close(self, error: BaseException | None) -> BaseException | None:
        """Close the services of the run; the answer is how it ends now."""
        return await self._provision.close(error) if self._provision else error

    async def _find(self, parameter: Parameter, owner: str) -> Any:
        want = parameter.want
        value = recall(self._memory, want)
        if value is MISSING and self._provision and not want.parts:
            value = await self._provision.get(want)
        if value is MISSING:
            value = self._of_every_run(want)
        if value is MISSING:
            value = parameter.default
        if value is MISSING:
            raise self._not_found(parameter, owner)
        return value

    def _of_every_run(self, want: Want) -> Any:
        if want.declared is logging.Logger:
            return logging.getLogger(self._train)
        return self._token if want.declared is Cancellation else MISSING

    def _not_found(self, parameter: Parameter, owner: str) -> WiringError:
        missing = name_of(_missing(self._memory, parameter.want).declared)
        known = {name_of(kind): kind for kind in self._memory if isinstance(kind, type)}
        asks = f"{owner} asks for {missing} (parameter {parameter.name!r})"
        return WiringError(
            f"train {self._train!r}: {asks}, but could not find one; "
            f"available: {', '.join(sorted(known)) or 'nothing'}{did_you_mean(missing, known)}"
        )


def _missing(memory: Memory, want: Want) -> Want:
    """The want itself, or the first part of it that memory has no answer to."""
    return next((_missing(memory, part) for part in want.parts if recall(memory, part) is MISSING), want)
