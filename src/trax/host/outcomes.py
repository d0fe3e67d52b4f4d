"""How a run ended, as what is written down about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from trax.records.ended import EndKind
from trax.records.metadata import Ending
from trax.records.states import State
from trax.train import Cancelled, Done, Failed, Interrupted

if TYPE_CHECKING:
    from trax.host.parameters import Parameters
    from trax.train import Outcome, Train


def ending_of(
    metadata_id: int, outcome: Outcome[Any], train: Train[Any, Any], parameters: Parameters
) -> Ending:
    """What the record says."""
    match outcome:
        case Done(value):
            output = parameters.saved_output(train, value)
            return Ending(metadata_id=metadata_id, worker_id=None, state=State.COMPLETED, output=output)
        case Failed(_, failure):
            return Ending(
                metadata_id=metadata_id,
                worker_id=None,
                state=State.FAILED,
                failure_junction=failure.junction,
                failure_exception=failure.type,
                failure_reason=failure.message,
                stack_trace=failure.stack_trace,
            )
        case Cancelled(reason) | Interrupted(reason):
            return Ending(
                metadata_id=metadata_id,
                worker_id=None,
                state=State.CANCELLED,
                failure_exception=type(outcome).__name__,
                failure_reason=reason,
            )
        case _:
            assert_never(outcome)


def kind_of(outcome: Outcome[Any]) -> EndKind:
    """What it means to the manifest."""
    match outcome:
        case Done():
            return EndKind.SUCCESS
        case Failed():
            return EndKind.FAILURE
        case Cancelled():
            return EndKind.CANCELLED
        case Interrupted():
            return EndKind.INTERRUPTED
        case _:
            assert_never(outcome)


def gives_up(outcome: Outcome[Any], train: Train[Any, Any]) -> bool:
    """Whether the train says that trying again would not help after this error."""
    retry = train.options.retry
    return isinstance(outcome, Failed) and retry is not None and isinstance(outcome.error, retry.give_up_on)
