"""What a worker and the processes of its cpu trains say to each other."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from trax.errors import TraxError
from trax.train import Cancelled, Done, Failed, Interrupted, Outcome
from trax.work.reference import Reference

logger = logging.getLogger(__name__)

Desk: TypeAlias = Mapping[str, Callable[..., Any]]
"""What the worker does for a run that asks, by name."""


@dataclass(frozen=True, slots=True)
class Work:
    """Run this train with this input, which is JSON text.

    `facts` is what the run may know of itself; log lines from `log_level` on are wanted by the worker.
    """

    reference: Reference
    input: str
    facts: Mapping[str, Any]
    log_level: int = logging.WARNING

    @property
    def metadata_id(self) -> int:
        return self.facts["metadata_id"]


class Stop(NamedTuple):
    """The run under way, if it is still this one, should stop."""

    metadata_id: int
    reason: str
    interrupts: bool
    timed_out: bool


class Ready(NamedTuple):
    """The process has started, and waits for work."""


class Asked(NamedTuple):
    """The run wants something done that only the worker can do; without a number, it awaits no answer."""

    what: str
    arguments: tuple[Any, ...]
    number: int | None = None


class Answered(NamedTuple):
    """What came of it."""

    number: int
    value: Any = None
    error: Exception | None = None


class Ended(NamedTuple):
    """The run is over; `outcome` is packed."""

    outcome: bytes


def packed(outcome: Outcome[Any]) -> bytes:
    """An outcome on its way to the worker. What cannot travel stays behind; how the run ended never does."""
    try:
        return _travelling(outcome)
    except Exception as error:  # noqa: BLE001 - anyone's class may refuse in its own way
        logger.warning("part of an outcome cannot leave its process and is left out: %s", error)
        return _travelling(_without_guests(outcome))


def unpacked(data: bytes) -> Outcome[Any]:
    return pickle.loads(data)  # noqa: S301 - written by our own child process


def portable(error: Exception) -> Exception:
    """The error itself if it can travel, else one that says the same."""
    try:
        _travelling(error)
    except Exception:  # noqa: BLE001 - as above
        return TraxError(f"{type(error).__name__}: {error}")
    return error


def _travelling(value: Any) -> bytes:
    data = pickle.dumps(value)
    pickle.loads(data)  # noqa: S301 - many an exception can be written, but not read again
    return data


def _without_guests(outcome: Outcome[Any]) -> Outcome[Any]:
    match outcome:
        case Done():
            return Done(None)
        case Failed(_, failure):
            return Failed(TraxError(f"{failure.type}: {failure.message}"), failure)
        case Cancelled() | Interrupted():
            return replace(outcome, error=None)
