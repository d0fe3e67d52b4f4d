"""Which recorded run the code is part of: `current()`, in junctions and in the threads they run in."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from trax.train.cancellation import Cancellation

if TYPE_CHECKING:
    from collections.abc import Generator


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

    @property
    def cancelled(self) -> bool:
        """Whether someone asked this run to stop, for good or until later."""
        return self.cancellation.requested


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
