"""Trains: a named route that can be run, with or without anything around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from trax.errors import DefinitionError
from trax.train.journey import Journey
from trax.train.options import TrainOptions
from trax.train.outcome import result_of
from trax.train.plan import Plan
from trax.train.route import In_contra, Out_co, Route
from trax.train.services import Services

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Unpack

    from trax.train.journey import RunKeywords
    from trax.train.outcome import Outcome


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Train(Generic[In_contra, Out_co]):
    """A route with a name: one input type, one output type, and how its runs are handled."""

    name: str
    route: Route[In_contra, Out_co]
    options: TrainOptions
    services: Services | None
    extra: tuple[Any, ...]
    plan: Plan

    def __repr__(self) -> str:
        return f"<train {self.name}: {self.route!r}>"

    @property
    def input_type(self) -> Any:
        return self.plan.input_type

    @property
    def output_type(self) -> Any:
        return self.plan.output_type

    @property
    def is_sync(self) -> bool:
        """Whether every junction is synchronous, so that the train can run without an event loop."""
        return self.plan.first_async is None

    async def run(self, value: In_contra, /, **how: Unpack[RunKeywords]) -> Out_co:
        """Run here and now; what a junction raises reaches the caller as it is."""
        return result_of(await self.attempt(value, **how))

    def attempt(
        self, value: In_contra, /, **how: Unpack[RunKeywords]
    ) -> Coroutine[Any, Any, Outcome[Out_co]]:
        """Run here and now; how it ended is the answer. Only a cancelled task raises."""
        services = how["services"] = how.get("services") or self.services
        if self.is_sync and (services is None or not services.any_of(self.plan.asked_for)):
            return Journey(self.plan, is_blocking=True, **how).attempt_in_thread(value)
        return Journey(self.plan, is_blocking=False, **how).attempt(value)

    def run_blocking(self, value: In_contra, /, **how: Unpack[RunKeywords]) -> Out_co:
        """Run in the calling thread; every junction must be synchronous."""
        return result_of(self.attempt_blocking(value, **how))

    def attempt_blocking(self, value: In_contra, /, **how: Unpack[RunKeywords]) -> Outcome[Out_co]:
        """Run in the calling thread; how it ended is the answer."""
        if self.plan.first_async is not None:
            raise DefinitionError(
                f"train {self.name!r} cannot run blocking: its junction {self.plan.first_async!r} is async"
            )
        how["services"] = how.get("services") or self.services
        return Journey(self.plan, is_blocking=True, **how).attempt_here(value)
