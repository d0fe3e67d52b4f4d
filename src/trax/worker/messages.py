"""Messages between a worker and its cpu processes, and how such a process finds a train."""

from __future__ import annotations

import importlib
import logging
import pickle
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from trax.engine.open_store import refuse_opening
from trax.errors import DefinitionError, TraxError
from trax.train import Cancelled, Done, Failed, Interrupted, Outcome, Registry, Train

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        logger.warning("process: part of an outcome cannot be pickled and is dropped: %s", error)
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


MAIN = "__main__"

ALIAS = "__mp_main__"


class TrainReference(NamedTuple):
    """The name of a train, and the module and name of a variable that holds the train or its app."""

    train: str
    module: str
    name: str

    def resolve(self) -> Train[Any, Any]:
        """Import the module and return the train."""
        with refuse_opening("a process for cpu trains"):
            module = importlib.import_module(self.module)
        found: Any = getattr(module, self.name, None)
        if isinstance(found, Train):
            return cast("Train[Any, Any]", found)
        trains = _trains_of(found)
        if trains is None:
            raise DefinitionError(
                f"train {self.train!r} has cpu=True, but {self.module}.{self.name} does not exist when "
                "another process imports the module; define it outside `if __name__ == '__main__':`"
            )
        return trains.get(self.train)


@cache
def reference_to(train: Train[Any, Any]) -> TrainReference:
    """The variable that holds this train, or its app."""
    for module, name, value in _globals():
        if value is train:
            return TrainReference(train.name, module, name)
    for module, name, value in _globals():
        trains = _trains_of(value)
        if trains is not None and any(each is train for each in trains):
            return TrainReference(train.name, module, name)
    raise DefinitionError(
        f"train {train.name!r} has cpu=True, so another process must be able to import it; assign it, or "
        "its app, to a name at the top level of a module"
    )


def _globals() -> Iterator[tuple[str, str, Any]]:
    """Every name of every module; those of `__main__` last, since importing a script again costs more."""
    for module_name, module in sorted(sys.modules.items(), key=lambda item: item[0] == MAIN):
        if isinstance(module, ModuleType) and module_name != ALIAS:  # pyright: ignore[reportUnnecessaryIsInstance]
            for name, value in list(vars(module).items()):
                yield module_name, name, value


def _trains_of(holder: Any) -> Registry | None:
    """The trains of an app. Reads only `__dict__`: attribute access may run code of other objects."""
    with suppress(AttributeError, TypeError):
        trains = object.__getattribute__(holder, "__dict__").get("trains")
        return trains if isinstance(trains, Registry) else None
    return None
