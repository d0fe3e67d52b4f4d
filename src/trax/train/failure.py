"""Error details attached to an exception that leaves a train: `trax_data` and a note."""

from __future__ import annotations

import traceback
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trax.errors import RemoteFailure

if TYPE_CHECKING:
    from types import TracebackType

PACKAGE = __name__.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class TrainExceptionData:
    """A failure as plain values: the train, the junction, and the exception."""

    train_name: str
    train_external_id: str
    type: str
    junction: str | None
    message: str
    stack_trace: str


def describe(
    error: BaseException, *, train: str, external_id: str, junction: str | None
) -> TrainExceptionData:
    """Describe a failure of this train, and attach the description to the exception as `trax_data`.

    An exception that passes through several trains keeps the description of the innermost one.
    """
    is_remote = isinstance(error, RemoteFailure)  # then the details of the remote error are the useful ones
    failure = TrainExceptionData(
        train_name=train,
        train_external_id=external_id,
        type=error.type if is_remote else type(error).__name__,
        junction=error.junction if is_remote else junction,
        message=_message(error),
        stack_trace=error.stack_trace if is_remote else _stack_trace(error),
    )
    with suppress(Exception):  # an exception class may refuse new attributes
        if getattr(error, "trax_data", None) is None:
            error.trax_data = failure  # pyright: ignore[reportAttributeAccessIssue]
        error.add_note(_note(failure))
    return failure


def _note(failure: TrainExceptionData) -> str:
    where = f"junction {failure.junction!r} of " if failure.junction else ""
    return f"in {where}train {failure.train_name!r} (run {failure.train_external_id})"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the failure
        return f"<{type(error).__name__} without a readable message>"


def _stack_trace(error: BaseException) -> str:
    """The traceback without the frames of Trax above the junction."""
    return "".join(traceback.format_exception(type(error), error, _from_junction(error.__traceback__)))


def _from_junction(trace: TracebackType | None) -> TracebackType | None:
    first = trace
    while trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith(PACKAGE):
        trace = trace.tb_next
    return trace or first
