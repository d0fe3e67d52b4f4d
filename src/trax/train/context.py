"""Which recorded run the code is part of: `current()`, in junctions and in the threads they run in."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from trax.train.cancellation import Cancellation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable
    from typing import TypeAlias

    Activator: TypeAlias = Callable[["Run", list[tuple[str, Any]], bool], Awaitable[int]]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One recorded run as its own junctions see it."""

    metadata_id: int
    external_id: str
    train: str
    manifest: str | None = None
    attempt: int = 1
    parent_id: int | None = None
    scheduled_for: datetime | None = None
    cancellation: Cancellation = field(default_factory=Cancellation, repr=False)
    activator: Activator | None = field(default=None, repr=False)

    @property
    def cancelled(self) -> bool:
        """Whether someone asked this run to stop, for good or until later."""
        return self.cancellation.requested

    async def activate(self, external_id: str, value: Any, *, force: bool = False) -> int:
        """Wake a dormant dependent of this manifest, with an input made now; see `activate_many`."""
        return await self.activate_many([(external_id, value)], force=force)

    async def activate_many(self, wanted: Iterable[tuple[str, Any]], *, force: bool = False) -> int:
        """Wake dormant dependents of this manifest, all of them or, when one is not its dependent, none.

        One that is queued or running already is passed over, and so is one whose dead letter awaits a person,
        unless `force` is given. Returns how many were woken. Without a manifest there is nothing to wake.
        """
        if self.activator is None or self.manifest is None:
            logger.warning("train %r runs without a manifest: it has no dependents to activate", self.train)
            return 0
        return await self.activator(self, list(wanted), force)


_current: ContextVar[Run | None] = ContextVar("trax_current_run", default=None)


def current() -> Run | None:
    """The recorded run this code is part of; None outside one."""
    return _current.get()


@contextmanager
def entered(run: Run) -> Generator[Run]:
    """Make this the current run inside the block."""
    token = _current.set(run)
    try:
        yield run
    finally:
        _current.reset(token)
