"""Messages between a worker and its cpu processes."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from trax.errors import TraxError
from trax.train import Cancelled, Done, Failed, Interrupted, Outcome
from trax.work.reference import TrainReference

logger = logging.getLogger(__name__)

RequestHandlers: TypeAlias = Mapping[str, Callable[..., Any]]
"""The worker's functions for requests of a run, by name."""


@dataclass(frozen=True, slots=True)
class ExecuteRequest:
    """Run this train with this input, which is JSON text.

    `facts` are the fields of `Run`; the worker wants log records from `log_level` on.
    """

    reference: TrainReference
    input: str
    facts: Mapping[str, Any]
    log_level: int = logging.WARNING

    @property
    def metadata_id(self) -> int:
        return self.facts["metadata_id"]


class StopRequest(NamedTuple):
    """Stop the current run, if it is still this one."""

    metadata_id: int
    reason: str
    interrupts: bool
    timed_out: bool


class ProcessReady(NamedTuple):
    """The process has started and waits for a run."""


class WorkerRequest(NamedTuple):
    """A request of the run to the worker; without a number, no response is expected."""

    handler: str
    arguments: tuple[Any, ...]
    number: int | None = None


class WorkerResponse(NamedTuple):
    """The response to a request."""

    number: int
    value: Any = None
    error: Exception | None = None


class RunEnded(NamedTuple):
    """The run has ended; `outcome` is pickled."""

    outcome: bytes


def pack_outcome(outcome: Outcome[Any]) -> bytes:
    """Pickle an outcome. Values that cannot be pickled are dropped; how the run ended is kept."""
    try:
        return _pickle(outcome)
    except Exception as error:  # noqa: BLE001 - user classes may raise anything
        logger.warning("part of an outcome cannot be pickled and is dropped: %s", error)
        return _pickle(_without_user_objects(outcome))


def unpack_outcome(data: bytes) -> Outcome[Any]:
    return pickle.loads(data)  # noqa: S301 - written by our own child process


def portable_error(error: Exception) -> Exception:
    """The error itself if it can be pickled, else a TraxError with its text."""
    try:
        _pickle(error)
    except Exception:  # noqa: BLE001 - as above
        return TraxError(f"{type(error).__name__}: {error}")
    return error


def _pickle(value: Any) -> bytes:
    data = pickle.dumps(value)
    pickle.loads(data)  # noqa: S301 - some exceptions can be pickled but not unpickled
    return data


def _without_user_objects(outcome: Outcome[Any]) -> Outcome[Any]:
    match outcome:
        case Done():
            return Done(None)
        case Failed(_, failure):
            return Failed(TraxError(f"{failure.type}: {failure.message}"), failure)
        case Cancelled() | Interrupted():
            return replace(outcome, error=None)
