"""How a run ended, as what is written down about it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

from trax.admin.policies import qualified_name
from trax.errors import RemoteFailure
from trax.records.ended import EndKind
from trax.records.metadata import Ending
from trax.records.states import State
from trax.train import Cancelled, Done, Failed, Interrupted, RetryAfter
from trax.train.secrets import hide_words

if TYPE_CHECKING:
    from datetime import timedelta

    from trax.host.parameters import Parameters
    from trax.settings import Settings
    from trax.train import Outcome, Train

T = TypeVar("T")


def ending_of(
    outcome: Outcome[Any],
    train: Train[Any, Any],
    parameters: Parameters,
    *,
    metadata_id: int,
    worker_id: int | None = None,
    junctions: str | None = None,
) -> Ending:
    """What the record says."""
    match outcome:
        case Done(value):
            output = parameters.saved_output(train, value)
            return Ending(metadata_id, worker_id, State.COMPLETED, output, junctions=junctions)
        case Failed(_, failure):
            return Ending(
                metadata_id,
                worker_id,
                State.FAILED,
                junctions=junctions,
                failure_junction=failure.junction,
                failure_exception=failure.type,
                failure_reason=failure.message,
                stack_trace=failure.stack_trace,
            )
        case Cancelled(reason) | Interrupted(reason):
            return Ending(
                metadata_id,
                worker_id,
                State.CANCELLED,
                junctions=junctions,
                failure_exception="Snooze" if delay_of(outcome) is not None else type(outcome).__name__,
                failure_reason=reason,
            )
        case _:
            assert_never(outcome)


def hide_in_outcome(outcome: Outcome[T], words: frozenset[str]) -> Outcome[T]:
    """How it ended, with dots in the place of these words; what the caller gets raised stays as it is."""
    if not words:
        return outcome
    match outcome:
        case Failed(error, failure):
            said = {name: hide_words(getattr(failure, name), words) for name in ("message", "stack_trace")}
            return Failed(error, replace(failure, **said))
        case Cancelled(reason) | Interrupted(reason):
            return replace(outcome, reason=hide_words(reason, words))
        case _:
            return outcome


def unwritable(ending: Ending, error: Exception) -> Ending:
    """A failure in the place of an ending that the database does not take."""
    return Ending(
        metadata_id=ending.metadata_id,
        worker_id=ending.worker_id,
        state=State.FAILED,
        failure_exception=type(error).__name__,
        failure_reason=f"its end as {ending.state} could not be written: {error}",
    )


def kind_of(outcome: Outcome[Any], settings: Settings) -> EndKind:
    """What it means to the manifest, or to the job's own entry."""
    match outcome:
        case Done():
            return EndKind.SUCCESS
        case Failed():
            return EndKind.FAILURE
        case Cancelled(timed_out=True) if settings.timeout_counts_as_failure:
            return EndKind.FAILURE
        case Cancelled():
            return EndKind.CANCELLED
        case Interrupted():
            return EndKind.INTERRUPTED
        case _:
            assert_never(outcome)


def delay_of(outcome: Outcome[Any]) -> timedelta | None:
    """How long the run itself wants to wait before it runs again, if it says so."""
    match outcome:
        case Failed(RetryAfter() as wish):
            return wish.delay
        case Interrupted(_, delay):
            return delay
        case _:
            return None


def raised(outcome: Outcome[Any]) -> tuple[str, ...]:
    """The names of the error's classes, by which a stored policy knows it."""
    if not isinstance(outcome, Failed):
        return ()
    if isinstance(outcome.error, RemoteFailure):
        return outcome.error.raised
    return tuple(map(qualified_name, type(outcome.error).__mro__))


def gives_up(outcome: Outcome[Any], train: Train[Any, Any]) -> bool:
    """Whether the train says that trying again would not help after this error."""
    retry = train.options.retry
    if not isinstance(outcome, Failed) or retry is None:
        return False
    if isinstance(outcome.error, RemoteFailure):
        return any(qualified_name(each) in outcome.error.raised for each in retry.give_up_on)
    return isinstance(outcome.error, retry.give_up_on)
