"""An active run: its job, its cancellation, and when to check it next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from trax.train import Cancellation

if TYPE_CHECKING:
    import asyncio


class Job(Protocol):
    """Something to run, identified by the id of its record."""

    @property
    def metadata_id(self) -> int: ...
    @property
    def train(self) -> str: ...
    @property
    def timeout_seconds(self) -> float | None: ...


JobT = TypeVar("JobT", bound=Job)


class ActiveRun(Generic[JobT]):
    """A job and what is needed to stop it. `next_check_at` is a time of the pool's clock."""

    __slots__ = ("job", "next_check_at", "seconds", "task", "token")

    def __init__(self, job: JobT, next_check_at: float, seconds: float) -> None:
        self.job = job
        self.seconds = seconds
        self.next_check_at = next_check_at
        self.token = Cancellation()
        self.task: asyncio.Task[Any] | None = None

    @property
    def extra(self) -> dict[str, Any]:
        """The `extra` of log records about this run."""
        return {"train": self.job.train, "metadata_id": self.job.metadata_id}

    def __str__(self) -> str:
        return f"run {self.job.metadata_id} of train {self.job.train!r}"
