"""Convert the outcome of a run into the result that is stored in its record."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

from trax.admin.policies import full_class_name
from trax.errors import RemoteFailure
from trax.records.ended import ResultKind
from trax.records.metadata import ResultRow
from trax.records.states import State
from trax.train import Cancelled, Done, Failed, Interrupted, RetryAfter
from trax.train.secrets import hide_words

if TYPE_CHECKING:
    from datetime import timedelta

    from trax.host.parameters import Parameters
    from trax.settings import Settings
    from trax.train import Outcome, Train

T = TypeVar("T")


def result_row_of(
    outcome: Outcome[Any],
    train: Train[Any, Any],
    parameters: Parameters,
    *,
    metadata_id: int,
    worker_id: int | None = None,
    junctions: str | None = None,
) -> ResultRow:
    """The result to store for this outcome."""
    match outcome:
        case Done(value):
            output = parameters.output_to_save(train, value)
            return ResultRow(metadata_id, worker_id, State.COMPLETED, output, junctions=junctions)
        case Failed(_, failure):
            return ResultRow(
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
            return ResultRow(
                metadata_id,
                worker_id,
                State.CANCELLED,
                junctions=junctions,
                failure_exception="Snooze" if delay_of(outcome) is not None else type(outcome).__name__,
                failure_reason=reason,
            )
        case _:
            assert_never(outcome)


def hide_in_outcome(outcome: Outcome[T], secret_words: frozenset[str]) -> Outcome[T]:
    """The same outcome with these words masked; the error that the caller gets is not changed."""
    if not secret_words:
        return outcome
    match outcome:
        case Failed(error, failure):
            masked = {
                name: hide_words(getattr(failure, name), secret_words) for name in ("message", "stack_trace")
            }
            return Failed(error, replace(failure, **masked))
        case Cancelled(reason) | Interrupted(reason):
            return replace(outcome, reason=hide_words(reason, secret_words))
        case _:
            return outcome


def unwritable_result(result: ResultRow, error: Exception) -> ResultRow:
    """The failure to store when the database rejects the content of a result."""
    return ResultRow(
        metadata_id=result.metadata_id,
        worker_id=result.worker_id,
        state=State.FAILED,
        failure_exception=type(error).__name__,
        failure_reason=f"the result ({result.state}) could not be stored: {error}",
    )


def end_kind_of(outcome: Outcome[Any], settings: Settings) -> ResultKind:
    """What the outcome counts as for the manifest, or for the entry of a single job."""
    match outcome:
        case Done():
            return ResultKind.SUCCESS
        case Failed():
            return ResultKind.FAILURE
        case Cancelled(timed_out=True) if settings.timeout_counts_as_failure:
            return ResultKind.FAILURE
        case Cancelled():
            return ResultKind.CANCELLED
        case Interrupted():
            return ResultKind.INTERRUPTED
        case _:
            assert_never(outcome)


def delay_of(outcome: Outcome[Any]) -> timedelta | None:
    """The delay that the run itself asked for (RetryAfter, Snooze), if any."""
    match outcome:
        case Failed(RetryAfter() as error):
            return error.delay
        case Interrupted(_, delay):
            return delay
        case _:
            return None


def error_class_names(outcome: Outcome[Any]) -> tuple[str, ...]:
    """The qualified names of the error's classes, which a stored retry policy is matched against."""
    if not isinstance(outcome, Failed):
        return ()
    if isinstance(outcome.error, RemoteFailure):
        return outcome.error.raised
    return tuple(map(full_class_name, type(outcome.error).__mro__))


def gives_up(outcome: Outcome[Any], train: Train[Any, Any]) -> bool:
    """Whether the train's retry policy excludes retries after this error (`give_up_on`)."""
    retry = train.options.retry
    if not isinstance(outcome, Failed) or retry is None:
        return False
    if isinstance(outcome.error, RemoteFailure):
        return any(full_class_name(each) in outcome.error.raised for each in retry.give_up_on)
    return isinstance(outcome.error, retry.give_up_on)
