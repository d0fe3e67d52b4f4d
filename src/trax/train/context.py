"""Which recorded run the code is part of: `current()`, in junctions and in the threads they run in."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from trax.bounds import is_number
from trax.errors import TraxError, shown
from trax.train.cancellation import Cancellation
from trax.train.secrets import hide_words

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import TypeAlias

    Reporter: TypeAlias = Callable[[float, str | None], None]

logger = logging.getLogger(__name__)


class Activator(Protocol):
    """Wakes dormant dependents of a run's manifest, from async code and from blocking code."""

    def __call__(self, run: Run, wanted: list[tuple[str, Any]], /, *, force: bool) -> Awaitable[int]: ...

    def blocking(self, run: Run, wanted: list[tuple[str, Any]], /, *, force: bool) -> int: ...


@dataclass(slots=True, kw_only=True)
class Run:
    """One recorded run as its own junctions see it.

    `manifest` is the one it belongs to; in a run inside another, the one that the run around it belongs to.
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
    """What must not be read in anything that is kept of it: the secrets of its input."""

    @property
    def cancelled(self) -> bool:
        """Whether someone asked this run to stop, for good or until later."""
        return self.cancellation.requested

    async def progress(self, fraction: float, message: str | None = None) -> None:
        """Say how far this run has come, from 0 to 1, and in a few words. Say it as often as you like.

        It is shown within a second: only what was said last is written down, together with other runs.
        """
        self.sync.progress(fraction, message)

    async def activate(self, external_id: str, value: Any, *, force: bool = False) -> int:
        """Wake a dormant dependent of this manifest, with an input made now; see `activate_many`."""
        return await self.activate_many([(external_id, value)], force=force)

    async def activate_many(self, wanted: Iterable[tuple[str, Any]], *, force: bool = False) -> int:
        """Wake dormant dependents of this manifest, all of them or, when one is not its dependent, none.

        One that is queued or running already is passed over, and so is one whose dead letter awaits a person,
        unless `force` is given. Returns how many were woken. Without a manifest there is nothing to wake.
        """
        activator = self.bound_activator()
        return 0 if activator is None else await activator(self, list(wanted), force=force)

    @property
    def sync(self) -> BlockingRun:
        """The same verbs for synchronous junctions: `run.sync.activate(…)`."""
        return BlockingRun(self)

    def bound_activator(self) -> Activator | None:
        """Who wakes dependents, if this run has any to wake."""
        if self.activator is None or self.manifest is None:
            logger.warning(
                "train %r runs without a manifest: it has no dependents to activate",
                self.train,
                extra={"train": self.train, "metadata_id": self.metadata_id},
            )
            return None
        return self.activator


@dataclass(frozen=True, slots=True)
class BlockingRun:
    """What a run can ask for, for code that cannot await: each verb returns when it is done."""

    run: Run

    def progress(self, fraction: float, message: str | None = None) -> None:
        checked = _checked(fraction)
        if self.run.reporter is not None:
            self.run.reporter(checked, message and hide_words(message, self.run.secret_words))

    def activate(self, external_id: str, value: Any, *, force: bool = False) -> int:
        return self.activate_many([(external_id, value)], force=force)

    def activate_many(self, wanted: Iterable[tuple[str, Any]], *, force: bool = False) -> int:
        activator = self.run.bound_activator()
        return 0 if activator is None else activator.blocking(self.run, list(wanted), force=force)


def _checked(fraction: Any) -> float:
    if not is_number(fraction, 0, 1):
        raise TraxError(f"progress is a number from 0 to 1 (got {shown(fraction)})")
    return float(fraction)


_current: ContextVar[Run | None] = ContextVar("trax_current_run", default=None)


def current() -> Run | None:
    """The recorded run this code is part of; None outside one."""
    return _current.get()


class entered:  # noqa: N801 - read as a word: `with entered(run):`
    """Make this the current run inside the block. Spelled out, since every run comes through here."""

    __slots__ = ("_run", "_token")

    def __init__(self, run: Run) -> None:
        self._run = run

    def __enter__(self) -> Run:
        self._token = _current.set(self._run)
        return self._run

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)
