"""Call the hooks of an app and of its trains when runs are queued, start and end.

A hook gets the record of the run. Except for `on_queue`, an error in a hook does not affect the run.
"""

from __future__ import annotations

import copy
import inspect
import logging
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, assert_never

from trax.engine.retry import full_class_name
from trax.errors import DefinitionError, RemoteFailure, format_value
from trax.train import Cancelled, Done, Failed, Interrupted, Train
from trax.train.secrets import hide_words

if TYPE_CHECKING:
    from trax.engine.parameters import Parameters
    from trax.records import Metadata
    from trax.store import Store
    from trax.train import Hook, Outcome

logger = logging.getLogger(__name__)
HookT = TypeVar("HookT", bound="Hook")

HOOK_NAMES = ("on_queue", "on_started", "on_completed", "on_failed", "on_cancelled", "on_state_changed")


def hide_in_error(outcome: Outcome[Any], secret_words: frozenset[str]) -> Outcome[Any]:
    """The outcome for hooks: an exception that shows one of these words is replaced by a masked copy.

    Where a copy is not possible, it is a RemoteFailure, which names the class.
    """
    if not isinstance(outcome, Failed) or not _shows(outcome.error, secret_words):
        return outcome
    failure = outcome.failure
    try:
        masked = _copy_masked(outcome.error, secret_words)
        if not _shows(masked, secret_words):
            return Failed(masked, failure)
    except Exception:  # noqa: BLE001 - the class of an exception may do anything
        logger.debug("train %r: its %s cannot be copied for hooks", failure.train_name, failure.type)
    names = [full_class_name(each) for each in type(outcome.error).__mro__]
    message, trace = failure.message, failure.stack_trace
    error = RemoteFailure(
        message, type=failure.type, junction=failure.junction, stack_trace=trace, raised=names
    )
    return Failed(error, failure)


def _shows(error: BaseException, words: frozenset[str]) -> bool:
    if not words:
        return False
    try:
        text = "".join(traceback.format_exception(error)) + repr((error, error.args, vars(error)))
    except Exception:  # noqa: BLE001 - as above
        return True
    return any(word in text for word in words)


def _copy_masked(error: BaseException, words: frozenset[str]) -> BaseException:
    masked = copy.copy(error).with_traceback(error.__traceback__)
    masked.args = tuple(hide_words(each, words) if isinstance(each, str) else each for each in error.args)
    masked.__suppress_context__ = True
    vars(masked).pop("trax_data", None)
    vars(masked).pop("__notes__", None)
    for name, value in vars(masked).items():
        if isinstance(value, str):
            setattr(masked, name, hide_words(value, words))
    return masked


class HookTarget(NamedTuple):
    """The run that hooks are called for. `input` is JSON text, also when the record does not save it."""

    train: Train[Any, Any]
    metadata_id: int
    input: str | None = None


class Hooks:
    """The hooks of an app, called for every train; the train's own hooks follow.

    Each `on_…` registers a function, and can be used as a decorator.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._shared: dict[str, list[Hook]] = {name: [] for name in HOOK_NAMES}
        self.shared_queue_hooks = self._shared["on_queue"]
        self.has_any = False
        """Whether the app has any hook of its own, for every train."""

    def on_queue(self, hook: HookT) -> HookT:
        """Called before `app.queue` writes an entry; an exception prevents it."""
        return self._register("on_queue", hook)

    def on_started(self, hook: HookT) -> HookT:
        """Called when a run has started."""
        return self._register("on_started", hook)

    def on_completed(self, hook: HookT) -> HookT:
        """Called when a run has completed; the record has the output, even when outputs are not saved."""
        return self._register("on_completed", hook)

    def on_failed(self, hook: HookT) -> HookT:
        """Called when a run has failed, with the record and the exception."""
        return self._register("on_failed", hook)

    def on_cancelled(self, hook: HookT) -> HookT:
        """Called when a run was cancelled, or interrupted and returned to the queue."""
        return self._register("on_cancelled", hook)

    def on_state_changed(self, hook: HookT) -> HookT:
        """Called after each of on_started, on_completed, on_failed and on_cancelled."""
        return self._register("on_state_changed", hook)

    def queue_hooks(self, train: Train[Any, Any]) -> list[Hook]:
        """The hooks to call before an entry is written."""
        own = train.options.on_queue
        return [*self.shared_queue_hooks, *([own] if own else ())]

    async def call_start_hooks(self, store: Store, target: HookTarget) -> None:
        await self._call_hooks(store, target, "on_started")

    async def call_end_hooks(self, store: Store, target: HookTarget, outcome: Outcome[Any]) -> None:
        """Call the hooks for the end of a run, after its result is recorded."""
        error = (outcome.error,) if isinstance(outcome, Failed) else ()
        output = outcome if isinstance(outcome, Done) else None
        await self._call_hooks(store, target, _hook_name(outcome), *error, outcome=output)

    def has_start_hook(self, train: Train[Any, Any]) -> bool:
        """Whether any hook is registered for the start of a run."""
        return self._has_hook(train, "on_started")

    def has_end_hook(self, train: Train[Any, Any], outcome: Outcome[Any]) -> bool:
        """Whether any hook is registered for this outcome."""
        return self._has_hook(train, _hook_name(outcome))

    def _has_hook(self, train: Train[Any, Any], name: str) -> bool:
        shared = self._shared
        return bool(getattr(train.options, name) or shared[name] or shared["on_state_changed"])

    async def _call_hooks(
        self, store: Store, target: HookTarget, name: str, *arguments: Any, outcome: Done[Any] | None = None
    ) -> None:
        own, shared = getattr(target.train.options, name), self._shared
        if not self._has_hook(target.train, name):
            return
        from trax.store.runs import metadata

        try:
            record = await store.ask(metadata.get, target.metadata_id)
            record = record and self._fill_values(record, target, outcome)
        except Exception:
            extra = {"train": target.train.name, "metadata_id": target.metadata_id, "hook": name}
            text = "train %r: the record of run %s could not be read; its %s hooks were not called"
            logger.exception(text, target.train.name, target.metadata_id, name, extra=extra)
            return
        subject = f"train {target.train.name!r}: "
        for hook in shared[name]:
            await _call_hook(hook, f"{subject}the app's hook {name}", record, *arguments)
        for hook in shared["on_state_changed"]:
            await _call_hook(hook, f"{subject}the app's hook on_state_changed", record)
        if own is not None:
            await _call_hook(own, f"{subject}its hook {name}", record, *arguments)

    def _fill_values(self, record: Metadata, target: HookTarget, outcome: Done[Any] | None) -> Metadata:
        """The record with full input and output, also when these are not saved or truncated."""
        from trax.store.types import parse_json

        if target.input is not None:
            record = replace(record, input=parse_json(target.input))
        if outcome is not None:
            text = self._parameters.encode_output(target.train, outcome.value)
            record = record if text is None else replace(record, output=parse_json(text))
        return record

    def _register(self, name: str, hook: HookT) -> HookT:
        if not callable(hook):
            raise DefinitionError(f"app.{name} requires a callable (got {format_value(hook)})")
        self._shared[name].append(hook)
        self.has_any = True
        return hook


def _hook_name(outcome: Outcome[Any]) -> str:
    match outcome:
        case Done():
            return "on_completed"
        case Failed():
            return "on_failed"
        case Cancelled() | Interrupted():
            return "on_cancelled"
        case _:
            assert_never(outcome)


async def _call_hook(hook: Hook, label: str, *arguments: Any) -> None:
    try:
        result = hook(*arguments)
        if inspect.isawaitable(result):
            await result
    except Exception:
        logger.exception("%s failed; the run is not affected", label)
