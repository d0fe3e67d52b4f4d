"""One active run: its job and deadline, where it is, what it reports."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from time import perf_counter
from types import coroutine
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from trax.errors import StoreError
from trax.records.metadata import ProgressUpdate, timings_to_json
from trax.records.states import CancelReason
from trax.train import Run
from trax.train.run import TrainRun
from trax.worker.run_log import CHECK_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Generator
    from contextvars import Context
    from datetime import datetime

    from trax.store import Store
    from trax.store.runs.claim import Claimed
    from trax.train import Cancellation
    from trax.train.context import Activator

logger = logging.getLogger(__name__)
STOP_REASONS: Final = {
    CancelReason.REQUESTED: "cancelled by request",
    CancelReason.TIMEOUT: "timed out",
}
"""The reason that a stopped run gets."""
MAX_TIMINGS: Final = 100
MESSAGE_CHARACTERS: Final = 500


class RunProgress(TrainRun):
    """A run with a record: its current junction and last report. Any thread may read; only the run writes.

    A junction costs two clock reads. The database is checked for a stop request between two junctions, if the
    last check is older than `CHECK_SECONDS` or this process has just requested a stop.
    """

    # Most runs change none of these: defaults on the class make a run cheap to start.
    is_held = False
    """Whether a worker holds the run, and checks for stop requests."""
    began = 0.0
    current: tuple[str, float] | None = None
    last_report: tuple[float, str | None] | None = None
    saved_state: tuple[object, object] | None = None
    """What was written last; the first write also records the start of a run that was claimed ahead."""
    replaced_input: tuple[str | None] | None = None
    """What the record stores instead of the input, after the run has read it."""
    stop_check_at = 0.0
    secret_words: frozenset[str] = frozenset()
    """Secrets of its input, masked in everything that is recorded."""
    steps: list[tuple[str, float]] | None = None
    """The junctions that have begun, each with its time; not of a run with a single junction."""
    store: Store | None = None
    """Where it checks for stop requests."""

    def __init__(self, metadata_id: int, external_id: str, token: Cancellation | None = None) -> None:
        self.metadata_id = metadata_id
        self.external_id = external_id
        self.built_token = token

    @property
    def seconds(self) -> float:
        """Seconds since the run started."""
        return perf_counter() - self.began

    @property
    def state(self) -> tuple[object, object]:
        """What to write; compared with `saved_state`."""
        return self.current, self.last_report

    def enter(self, junction: str) -> Awaitable[None] | None:
        """Note that a junction begins; await the result first, if there is one."""
        now = perf_counter()
        if now >= self.stop_check_at and not self.is_stop_requested:
            return self._check_first(junction, now)
        self._begin(junction, now)
        return None

    def report(self, fraction: float, message: str | None) -> None:
        """Store a progress report of the run; only the last one is written."""
        self.last_report = fraction, message and message[:MESSAGE_CHARACTERS]

    def timings(self) -> str | None:
        """Junction timings of a run that ends now, as JSON; None for a single junction."""
        if self.steps is None or len(self.steps) < 2:  # noqa: PLR2004
            return None
        ends = [*(began for _, began in self.steps[1:]), perf_counter()]
        steps = zip(self.steps, ends, strict=True)
        return timings_to_json(
            (name, began - self.began, end - began) for (name, began), end in list(steps)[:MAX_TIMINGS]
        )

    def build_note(self, now: datetime) -> ProgressUpdate:
        """The progress to write; starts are computed from the database's `now`."""
        name, began = self.current or (None, None)
        fraction, message = self.last_report or (None, None)
        return ProgressUpdate(
            metadata_id=self.metadata_id,
            started_at=now - timedelta(seconds=self.seconds),
            current_junction=name,
            junction_started_at=None if began is None else now - timedelta(seconds=perf_counter() - began),
            progress=fraction,
            progress_message=message,
        )

    def stop(self, reason: CancelReason) -> None:
        self.token.cancel(STOP_REASONS[reason], timed_out=reason is CancelReason.TIMEOUT)

    def _begin(self, junction: str, now: float) -> None:
        if self.is_stop_requested:
            return  # the junction will not begin
        self.current = junction, now
        if self.steps is None:
            self.steps = []
        if len(self.steps) <= MAX_TIMINGS:
            self.steps.append(self.current)

    def _check_first(self, junction: str, now: float) -> Awaitable[None] | None:
        self.stop_check_at = (
            now + CHECK_SECONDS
        )  # before the check: a stop request made during it resets this
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # a synchronous train, in a thread of its own
            self._check_blocking()
            self._begin(junction, perf_counter())
            return None
        return self._check_async(junction)

    async def _check_async(self, junction: str) -> None:
        from trax.store.runs.run_log import find_cancel_requests

        assert self.store is not None  # noqa: S101 - an open run has a store
        try:
            self._apply_stop_requests(await self.store.ask(find_cancel_requests, [self.metadata_id]))
        except StoreError as error:
            logger.debug("run %s could not check for a stop request: %s", self.metadata_id, error)
        self._begin(junction, perf_counter())

    def _check_blocking(self) -> None:
        from trax.store.runs.run_log import find_cancel_requests

        assert self.store is not None  # noqa: S101 - an open run has a store
        try:
            self._apply_stop_requests(self.store.read(find_cancel_requests, [self.metadata_id]))
        except StoreError as error:
            logger.debug("run %s could not check for a stop request: %s", self.metadata_id, error)

    def _apply_stop_requests(self, reasons: dict[int, CancelReason]) -> None:
        for why in reasons.values():
            self.stop(why)


class Job(Protocol):
    """Something to run, identified by the id of its record."""

    @property
    def metadata_id(self) -> int: ...
    @property
    def external_id(self) -> str: ...
    @property
    def train(self) -> str: ...
    @property
    def timeout_seconds(self) -> float | None: ...
    @property
    def rank(self) -> tuple[int, int]: ...


JobT = TypeVar("JobT", bound=Job)
T = TypeVar("T")


class ActiveRun(RunProgress, Generic[JobT]):
    """A run in a slot: its job, the task that executes it, and when to check on it.

    `check_at` is a time of the pool's clock: its timeout, or when to see whether it has stopped.
    """

    is_held = True
    activator: Activator | None = None
    backlog_seconds = 0.0
    """How long it waited in the backlog of this worker."""
    _run: Run | None = None

    def __init__(self, job: JobT, check_at: float, seconds: float, task: asyncio.Task[Any] | None) -> None:
        self.metadata_id = job.metadata_id
        self.external_id = job.external_id
        self.job = job
        self.check_at = check_at
        self.timeout = seconds
        self.task = task

    @property
    def run(self: ActiveRun[Claimed]) -> Run:
        """What its junctions get from `current()`; built when one asks."""
        if self._run is None:
            job = self.job
            run = Run(
                metadata_id=job.metadata_id,
                external_id=job.external_id,
                train=job.train,
                manifest=job.manifest,
                attempt=job.attempt,
                scheduled_for=job.scheduled_for,
                cancellation=self.token,
                activator=self.activator,
                reporter=self.report,
                secret_words=self.secret_words,
            )
            self.__dict__.setdefault("_run", run)  # two threads of a run may ask at once: the first one stays
        return self.__dict__["_run"]

    @property
    def pickup_seconds(self: ActiveRun[Claimed]) -> float | None:
        """From admission to its start, where it is known."""
        waited = self.job.waited_seconds
        return waited if waited is None else waited + self.backlog_seconds

    @property
    def extra(self) -> dict[str, Any]:
        """The `extra` of log records about this run."""
        return {"train": self.job.train, "metadata_id": self.metadata_id}

    def __str__(self) -> str:
        return f"run {self.metadata_id} of train {self.job.train!r}"


@coroutine
def continue_in_context(
    context: Context, steps: Coroutine[Any, Any, T], waits_for: Any
) -> Generator[Any, Any, T]:
    """Await the rest of a coroutine that waits for something, each of its steps in this context."""
    while True:
        step, argument = steps.send, None
        try:
            argument = yield waits_for
        except BaseException as error:  # noqa: BLE001 - the coroutine decides what it means
            step, argument = steps.throw, error
        try:
            waits_for = context.run(step, argument)
        except StopIteration as end:
            return end.value
