"""A run under way: its job, the wish that may stop it, and when somebody must look at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from trax.train import Cancellation

if TYPE_CHECKING:
    import asyncio


class Job(Protocol):
    """Something to run, known by the id of its record."""

    @property
    def metadata_id(self) -> int: ...
    @property
    def train(self) -> str: ...
    @property
    def timeout_seconds(self) -> float | None: ...


JobT = TypeVar("JobT", bound=Job)


class Running(Generic[JobT]):
    """A job and what is needed to stop it. `look_at` is a moment of the pool's clock."""

    __slots__ = ("job", "look_at", "seconds", "task", "token")

    def __init__(self, job: JobT, look_at: float, seconds: float) -> None:
        self.job = job
        self.seconds = seconds
        self.look_at = look_at
        self.token = Cancellation()
        self.task: asyncio.Task[Any] | None = None

    @property
    def extra(self) -> dict[str, Any]:
        """Which run it is, for a line in the log."""
        return {"train": self.job.train, "metadata_id": self.job.metadata_id}

    def __str__(self) -> str:
        return f"run {self.job.metadata_id} of train {self.job.train!r}"
