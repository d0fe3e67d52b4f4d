"""Hooks: told what happened, with the record as it stands, and never able to change it."""

from __future__ import annotations

import inspect
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, assert_never

from trax.errors import DefinitionError, shown
from trax.store import metadata
from trax.store.json import parsed
from trax.train import Cancelled, Done, Failed, Interrupted, Train

if TYPE_CHECKING:
    from trax.host.parameters import Parameters
    from trax.records import Metadata
    from trax.store import Store
    from trax.train import Hook, Outcome

logger = logging.getLogger(__name__)

HookT = TypeVar("HookT", bound="Hook")

NAMES = ("on_queue", "on_started", "on_completed", "on_failed", "on_cancelled", "on_state_changed")


class Told(NamedTuple):
    """Which run a hook is told of. `input` is JSON text, also when the record does not keep it."""

    train: Train[Any, Any]
    metadata_id: int
    input: str | None = None


class Hooks:
    """The hooks of an app, called for every train, and after them the train's own.

    Each registrar can be called with a function or stand over it as a decorator.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._shared: dict[str, list[Hook]] = {name: [] for name in NAMES}

    def on_queue(self, hook: HookT) -> HookT:
        """Before an entry is written for `app.queue`; what it raises keeps the entry from being written."""
        return self._added("on_queue", hook)

    def on_started(self, hook: HookT) -> HookT:
        """When a run has begun."""
        return self._added("on_started", hook)

    def on_completed(self, hook: HookT) -> HookT:
        """When a run has completed; its record has the output, also when outputs are not saved."""
        return self._added("on_completed", hook)

    def on_failed(self, hook: HookT) -> HookT:
        """When a run has failed; called with the record and the exception."""
        return self._added("on_failed", hook)

    def on_cancelled(self, hook: HookT) -> HookT:
        """When a run was cancelled, or had to stop and will run again."""
        return self._added("on_cancelled", hook)

    def on_state_changed(self, hook: HookT) -> HookT:
        """After each of the four above."""
        return self._added("on_state_changed", hook)

    def of_queue(self, train: Train[Any, Any]) -> list[Hook]:
        """What is asked before an entry is written."""
        own = train.options.on_queue
        return [*self._shared["on_queue"], *([own] if own else ())]

    async def started(self, store: Store, told: Told) -> None:
        await self._tell(store, told, "on_started")

    async def ended(self, store: Store, told: Told, outcome: Outcome[Any]) -> None:
        """Tell how a run ended, once its ending is written."""
        error = (outcome.error,) if isinstance(outcome, Failed) else ()
        output = outcome if isinstance(outcome, Done) else None
        await self._tell(store, told, _name(outcome), *error, outcome=output)

    def hears_start(self, train: Train[Any, Any]) -> bool:
        """Whether anybody wants to know that a run has begun."""
        return self._is_heard(train, "on_started")

    def hears(self, train: Train[Any, Any], outcome: Outcome[Any]) -> bool:
        """Whether anybody wants to know of such an end."""
        return self._is_heard(train, _name(outcome))

    def _is_heard(self, train: Train[Any, Any], name: str) -> bool:
        shared = self._shared
        return bool(getattr(train.options, name) or shared[name] or shared["on_state_changed"])

    async def _tell(
        self, store: Store, told: Told, name: str, *more: Any, outcome: Done[Any] | None = None
    ) -> None:
        own, shared = getattr(told.train.options, name), self._shared
        if not self._is_heard(told.train, name):
            return
        try:
            record = await store.ask(metadata.get, told.metadata_id)
            record = record and self._completed(record, told, outcome)
        except Exception:
            extra = {"train": told.train.name, "metadata_id": told.metadata_id, "hook": name}
            logger.exception("train %r: its hooks %s could not be told", told.train.name, name, extra=extra)
            return
        whose = f"train {told.train.name!r}: "
        for hook in shared[name]:
            await _call(hook, f"{whose}the app's hook {name}", record, *more)
        for hook in shared["on_state_changed"]:
            await _call(hook, f"{whose}the app's hook on_state_changed", record)
        if own is not None:
            await _call(own, f"{whose}its hook {name}", record, *more)

    def _completed(self, record: Metadata, told: Told, outcome: Done[Any] | None) -> Metadata:
        """The record with what it does not keep, or keeps only a note of: a hook sees both values whole."""
        if told.input is not None:
            record = replace(record, input=parsed(told.input))
        if outcome is not None:
            text = self._parameters.written_output(told.train, outcome.value)
            record = record if text is None else replace(record, output=parsed(text))
        return record

    def _added(self, name: str, hook: HookT) -> HookT:
        if not callable(hook):
            raise DefinitionError(f"app.{name} needs something that can be called (got {shown(hook)})")
        self._shared[name].append(hook)
        return hook


def _name(outcome: Outcome[Any]) -> str:
    match outcome:
        case Done():
            return "on_completed"
        case Failed():
            return "on_failed"
        case Cancelled() | Interrupted():
            return "on_cancelled"
        case _:
            assert_never(outcome)


async def _call(hook: Hook, what: str, *given: Any) -> None:
    try:
        answer = hook(*given)
        if inspect.isawaitable(answer):
            await answer
    except Exception:
        logger.exception("%s failed; the run is not affected", what)
