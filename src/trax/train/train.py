"""Train: a named route that can be run, with or without a database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from trax.errors import DefinitionError
from trax.train.journey import TrainRun
from trax.train.options import TrainOptions
from trax.train.outcome import result_of
from trax.train.plan import Plan
from trax.train.route import In_contra, Out_co, Route
from trax.train.services import Services

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Unpack

    from trax.train.journey import TrainRunKeywords
    from trax.train.outcome import Outcome


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Train(Generic[In_contra, Out_co]):
    """A named route with one input type, one output type, and options."""

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

    async def run(self, value: In_contra, /, **keywords: Unpack[TrainRunKeywords]) -> Out_co:
        """Run the train in this process and return its output. Errors of junctions are raised unchanged."""
        return result_of(await self.attempt(value, **keywords))

    def attempt(
        self, value: In_contra, /, **keywords: Unpack[TrainRunKeywords]
    ) -> Coroutine[Any, Any, Outcome[Out_co]]:
        """Run the train in this process and return its outcome. Raises only if the task is cancelled."""
        services = keywords["services"] = keywords.get("services") or self.services
        if self.is_sync and (services is None or not services.has_any(self.plan.parameter_keys)):
            return TrainRun(self.plan, is_blocking=True, **keywords).attempt_in_thread(value)
        return TrainRun(self.plan, is_blocking=False, **keywords).attempt(value)

    def run_blocking(self, value: In_contra, /, **keywords: Unpack[TrainRunKeywords]) -> Out_co:
        """Run the train in the calling thread; every junction must be synchronous."""
        return result_of(self.attempt_blocking(value, **keywords))

    def attempt_blocking(self, value: In_contra, /, **keywords: Unpack[TrainRunKeywords]) -> Outcome[Out_co]:
        """Run the train in the calling thread and return its outcome."""
        if self.plan.first_async is not None:
            raise DefinitionError(
                f"train {self.name!r} cannot run blocking: its junction {self.plan.first_async!r} is async"
            )
        keywords["services"] = keywords.get("services") or self.services
        return TrainRun(self.plan, is_blocking=True, **keywords).attempt_here(value)
