"""The current recorded run: `current()`, available in junctions and in the threads they run in."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from trax.bounds import is_number
from trax.errors import InvalidArgument
from trax.train.cancellation import Cancellation
from trax.train.secrets import hide_words

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import TypeAlias

    Reporter: TypeAlias = Callable[[float, str | None], None]

logger = logging.getLogger(__name__)


class Activator(Protocol):
    """Activates dormant dependents of a run's manifest, from async and from blocking code."""

    def __call__(self, run: Run, activations: list[tuple[str, Any]], /, *, force: bool) -> Awaitable[int]: ...

    def activate_blocking(self, run: Run, activations: list[tuple[str, Any]], /, *, force: bool) -> int: ...


@dataclass(slots=True, kw_only=True)
class Run:
    """The recorded run that the calling code is part of.

    `manifest` is the external id of its manifest; for a nested run, that of the outer run's manifest.
    """

    metadata_id: int
    external_id: str
    train: str
    manifest: str | None = None
    attempt: int = 1
    parent_id: int | None = None
    scheduled_for: datetime | None = None
    cancellation: Cancellation = field(default_factory=Cancellation, repr=False)
    activator: Activator | None = field(default=None, repr=False)
    reporter: Reporter | None = field(default=None, repr=False)
    secret_words: frozenset[str] = field(default=frozenset(), repr=False)
    """Secrets of its input, masked in everything that is recorded."""

    @property
    def cancelled(self) -> bool:
        """Whether this run was asked to stop, cancelled or interrupted."""
        return self.cancellation.requested

    async def progress(self, fraction: float, message: str | None = None) -> None:
        """Report the progress of this run: a fraction from 0 to 1, and a short message. Cheap to call often.

        It is visible within a second. Only the latest report is stored, in one batch with other runs.
        """
        self.sync.progress(fraction, message)

    async def activate(self, external_id: str, value: Any, *, force: bool = False) -> int:
        """Activate a dormant dependent of this manifest with an input; see `activate_many`."""
        return await self.activate_many([(external_id, value)], force=force)

    async def activate_many(self, activations: Iterable[tuple[str, Any]], *, force: bool = False) -> int:
        """Activate dormant dependents of this manifest: all, or none if one is not its dependent.

        A dependent that is already queued or running is skipped, and so is one whose dead letter awaits
        intervention, unless `force` is true. Returns the number activated; 0 for a run without a manifest.
        """
        activator = self.find_activator()
        return 0 if activator is None else await activator(self, list(activations), force=force)

    @property
    def sync(self) -> BlockingRun:
        """The same methods for synchronous junctions: `run.sync.activate(…)`."""
        return BlockingRun(self)

    def find_activator(self) -> Activator | None:
        """The activator of this run; None, with a warning, for a run without a manifest."""
        if self.activator is None or self.manifest is None:
            logger.warning(
                "train %r: this run has no manifest, so no dependents to activate",
                self.train,
                extra={"train": self.train, "metadata_id": self.metadata_id},
            )
            return None
        return self.activator


@dataclass(frozen=True, slots=True)
class BlockingRun:
    """The methods of a run for synchronous code; each returns when it is done."""

    run: Run

    def progress(self, fraction: float, message: str | None = None) -> None:
        valid_fraction = _validate_fraction(fraction)
        if self.run.reporter is not None:
            self.run.reporter(valid_fraction, message and hide_words(message, self.run.secret_words))

    def activate(self, external_id: str, value: Any, *, force: bool = False) -> int:
        return self.activate_many([(external_id, value)], force=force)

    def activate_many(self, activations: Iterable[tuple[str, Any]], *, force: bool = False) -> int:
        activator = self.run.find_activator()
        return (
            0 if activator is None else activator.activate_blocking(self.run, list(activations), force=force)
        )


def _validate_fraction(fraction: Any) -> float:
    if not is_number(fraction, 0, 1):
        raise InvalidArgument("progress", "a number from 0 to 1", fraction)
    return float(fraction)


class RunSource(Protocol):
    """Builds the current run when a junction asks for it: most runs never ask."""

    @property
    def run(self) -> Run: ...


_current: ContextVar[Run | RunSource | None] = ContextVar("trax_current_run", default=None)


def current() -> Run | None:
    """The recorded run that this code is part of; None outside a run."""
    source = _current.get()
    return source if source is None or isinstance(source, Run) else source.run


def set_current(source: RunSource) -> None:
    """Make this the current run for the rest of the context, which is the run's own."""
    _current.set(source)


class enter_run:  # noqa: N801 - used like a function in a with statement
    """Make this the current run inside the block. A class, since a generator would be slower."""

    __slots__ = ("_run", "_token")

    def __init__(self, run: Run) -> None:
        self._run = run

    def __enter__(self) -> Run:
        self._token = _current.set(self._run)
        return self._run

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)
