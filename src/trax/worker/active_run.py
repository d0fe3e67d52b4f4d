"""One active run: its token and deadline, where it is, what it reports; and how most runs are executed.

Most runs need only their train: no hooks, tracer, secrets or other process. `compile_runner` builds one
coroutine function for each such train. The parts of a run are built on first use: its token and the binding
to its task by `ActiveRun.token`, and a `TrainRun` when a junction fails or needs more than values in memory.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from threading import RLock
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar, cast

from trax.errors import StoreError, TraxError, UnexpectedCancellation
from trax.forks import fork_safe
from trax.records.metadata import ProgressUpdate, timings_to_json
from trax.records.result import ResultKind, RunResult
from trax.records.states import CancelReason, State
from trax.train import Cancellation, Failed, Run, set_current
from trax.train.context import TaskBinding
from trax.train.outcome import describe
from trax.train.run import TrainRun

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from datetime import datetime

    from trax.store import Store
    from trax.store.runs.claim import Claimed
    from trax.train import Outcome, Train
    from trax.train.context import Activator
    from trax.train.memory import Memory
    from trax.train.route import PlanStep
    from trax.worker.app_context import AppContext
    from trax.worker.job_runner import PreparedTrain

    Runner: TypeAlias = Callable[["ActiveRun[Claimed]"], Coroutine[Any, Any, RunResult]]

logger = logging.getLogger(__name__)
CHECK_SECONDS: Final = 0.5
"""How old the last check for a stop request may be when a junction begins."""
STOP_REASONS: Final = {
    CancelReason.REQUESTED: "cancelled by request",
    CancelReason.TIMEOUT: "timed out",
}
"""The reason that a stopped run gets."""
_lock: Final = fork_safe(RLock())
MAX_TIMINGS: Final = 100
MESSAGE_CHARACTERS: Final = 500


class RunProgress:
    """The current junction and last report of a run. Any thread may read; only the run itself writes.

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
    _steps: list[tuple[str, float]] | None = None
    _store: Store | None = None
    built_token: Cancellation | None = None
    """Its token, if one was built: see `token`."""

    def __init__(self, metadata_id: int, external_id: str, token: Cancellation | None = None) -> None:
        self.metadata_id = metadata_id
        self.external_id = external_id
        self.built_token = token

    @property
    def token(self) -> Cancellation:
        """Asks the run to stop. Built when it is first needed: most runs never need it."""
        if self.built_token is None:
            with _lock:
                if self.built_token is None:
                    self.built_token = self._new_token()
        return self.built_token

    @property
    def is_stop_requested(self) -> bool:
        return self.built_token is not None and self.built_token.requested

    def _new_token(self) -> Cancellation:
        return Cancellation()

    def open(self, store: Store) -> None:
        """Start the clock of the run; `store` is where it checks for stop requests."""
        self._store = store
        self.began = began = perf_counter()
        self.stop_check_at = began + CHECK_SECONDS

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
        if self._steps is None or len(self._steps) < 2:  # noqa: PLR2004
            return None
        ends = [*(began for _, began in self._steps[1:]), perf_counter()]
        steps = zip(self._steps, ends, strict=True)
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
        if self._steps is None:
            self._steps = []
        if len(self._steps) <= MAX_TIMINGS:
            self._steps.append(self.current)

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

        assert self._store is not None  # noqa: S101 - an open run has a store
        try:
            self._apply_stop_requests(await self._store.ask(find_cancel_requests, [self.metadata_id]))
        except StoreError as error:
            logger.debug("run %s could not check for a stop request: %s", self.metadata_id, error)
        self._begin(junction, perf_counter())

    def _check_blocking(self) -> None:
        from trax.store.runs.run_log import find_cancel_requests

        assert self._store is not None  # noqa: S101 - an open run has a store
        try:
            self._apply_stop_requests(self._store.read(find_cancel_requests, [self.metadata_id]))
        except StoreError as error:
            logger.debug("run %s could not check for a stop request: %s", self.metadata_id, error)

    def _apply_stop_requests(self, reasons: dict[int, CancelReason]) -> None:
        for why in reasons.values():
            self.stop(why)


class RunBinding(TaskBinding):
    """The binding of a run's token. It ends with the run, even if another thread asks for the token then."""

    def __init__(self, task: asyncio.Task[Any], token: Cancellation, run: ActiveRun[Any]) -> None:
        super().__init__(task, token)
        self._run = run

    @property
    def is_over(self) -> bool:
        return not self._run.is_bound or super().is_over


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


class ActiveRun(RunProgress, Generic[JobT]):
    """A run in a slot: its job, the task that executes it, and when to check on it.

    `check_at` is a time of the pool's clock: its timeout, or when to see whether it has stopped.
    """

    is_held = True
    is_bound = False
    """Whether its token cancels its task. Written on the event loop only."""
    activator: Activator | None = None
    backlog_seconds = 0.0
    """How long it waited in the backlog of this worker."""
    secret_words: frozenset[str] = frozenset()
    _run: Run | None = None
    _binding: RunBinding | None = None

    def __init__(self, job: JobT, check_at: float, seconds: float, task: asyncio.Task[Any] | None) -> None:
        self.metadata_id = job.metadata_id
        self.external_id = job.external_id
        self.job = job
        self.check_at = check_at
        self.timeout = seconds
        self.task = task

    @property
    def task_binding(self) -> TaskBinding:
        """The binding of its token to its task, of a run that `is_bound`."""
        self.token  # noqa: B018 - builds both
        assert self._binding is not None  # noqa: S101 - built with the token
        return self._binding

    def unbind(self) -> None:
        """Stop its token from cancelling its task: the run has ended, or is bound elsewhere."""
        self.is_bound = False
        if self._binding is not None:
            self._binding.release()

    def _new_token(self) -> Cancellation:
        token = Cancellation()
        if self.is_bound and self.task is not None:
            self._binding = token.add(RunBinding(self.task, token, self))
        return token

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


_new_result = cast("Any", tuple).__new__  # half the time of a call with 17 arguments
_SUCCESS = (State.COMPLETED, ResultKind.SUCCESS)
_NO_FAILURE = tuple(RunResult._field_defaults[name] for name in RunResult._fields[11:])


def can_compile(train: Train[Any, Any]) -> bool:
    """Whether all junctions of the train are async, and any error ends the run."""
    return all(step.is_async and not step.is_short_circuit for step in train.plan.steps)


def compile_runner(  # noqa: C901 - the steps are one function, as below
    prepared: PreparedTrain,
    context: AppContext,
    store: Store,
    worker_id: int,
    *,
    invalid_result: Callable[[Claimed, TraxError], RunResult],
    other_result: Callable[[ActiveRun[Claimed], PreparedTrain, Outcome[Any], str | None], RunResult],
) -> Runner:
    """The coroutine function that executes the runs of a train which `can_compile`, each in its own context.

    `invalid_result` builds the result of an input that cannot be decoded, `other_result` that of every
    outcome but success. Each call costs time, so the steps of a run are a loop in one function.
    """
    train, run_log, count_run = prepared.train, context.run_log, context.counters.count_run
    decode, has_steps_to_observe = prepared.codec.decode, prepared.has_steps_to_observe
    steps, store_input, find_result = train.plan.steps, train.plan.store_input, train.plan.find_result
    begin = _compile_begin(prepared, context, store)
    success_result = _compile_success_result(prepared, worker_id)

    async def execute(run: ActiveRun[Claimed]) -> RunResult:
        job = run.job
        try:
            value = decode(job.input or "null")
        except TraxError as error:
            return invalid_result(job, error)

        begin(run)
        memory: Memory = {}
        step: PlanStep | None = None
        outcome: Outcome[Any] | None = None
        output = rest = None
        try:
            try:
                store_input(memory, value)
                for place, step in enumerate(steps):
                    if has_steps_to_observe and (pending := run.enter(step.name)) is not None:
                        await pending
                    if (token := run.built_token) is not None:
                        token.raise_if_requested()
                    try:
                        arguments = [memory[key] for key in step.keys]
                    except KeyError:
                        rest = place
                        break
                    step.store(memory, await step.call(*arguments))
                else:
                    step = None
                    output = find_result(memory)
            except BaseException as error:  # noqa: BLE001 - most errors are an outcome
                outcome = _outcome_of(train, run, step, error)
            if rest is not None:
                outcome = await _run_rest(train, run, memory, rest)
        finally:
            run.is_bound = False
            if (token := run.built_token) is not None and token.requested:
                run.unbind()
            junctions = run_log.end_run(run)
            run_log.close_run(run)

        count_run(train.name, perf_counter() - run.began, run.pickup_seconds)
        if outcome is None:
            return success_result(job, output, junctions, run.began)
        return other_result(run, prepared, outcome, junctions)

    return execute


def _compile_begin(
    prepared: PreparedTrain, context: AppContext, store: Store
) -> Callable[[ActiveRun[Claimed]], None]:
    """The function that makes a run the current one, starts its clock and decides what is saved of it."""
    open_run, activator = context.run_log.open_run, context.activator
    input_to_save, only_junction = prepared.input_to_save, prepared.only_junction

    def begin(run: ActiveRun[Claimed]) -> None:
        run.activator = activator
        run.is_bound = True
        set_current(run)
        open_run(store, run)
        text = run.job.input
        if text and (kept := input_to_save(text)) is not text:
            run.replaced_input = (kept,)
        if only_junction is not None:
            run.current = only_junction, run.began

    return begin


def _compile_success_result(
    prepared: PreparedTrain, worker_id: int
) -> Callable[[Claimed, Any, str | None, float], RunResult]:
    """The function that builds the result of a completed run from its output and junction timings."""
    name, output_to_save = prepared.train.name, prepared.output_to_save

    def success_result(job: Claimed, output: Any, junctions: str | None, began: float) -> RunResult:
        return _new_result(
            RunResult,
            (
                job.metadata_id,
                job.external_id,
                worker_id,
                *_SUCCESS,
                name,
                job.manifest_id,
                job.attempt,
                output_to_save(output),
                junctions,
                began,
                *_NO_FAILURE,
            ),
        )

    return success_result


def _train_run(train: Train[Any, Any], run: ActiveRun[Claimed]) -> TrainRun:
    return TrainRun(
        train.plan,
        is_blocking=False,
        services=train.services,
        cancellation=run.token,
        external_id=run.external_id,
        task=run.task,
    )


def _outcome_of(
    train: Train[Any, Any], run: ActiveRun[Claimed], step: PlanStep | None, error: BaseException
) -> Outcome[Any]:
    try:
        return _train_run(train, run).outcome_of(error, step, run.task_binding)
    except asyncio.CancelledError:
        return task_cancelled(train, run)


async def _run_rest(
    train: Train[Any, Any], run: ActiveRun[Claimed], memory: Memory, first: int
) -> Outcome[Any]:
    """Run the steps from this one on, which takes a service, a new instance or a tuple."""
    run.unbind()
    try:
        return await _train_run(train, run).resume(memory, first)
    except asyncio.CancelledError:
        return task_cancelled(train, run)


def task_cancelled(train: Train[Any, Any], run: ActiveRun[Claimed]) -> Failed:
    """The outcome of a run whose task was cancelled by other code, without a request to cancel the run."""
    error = UnexpectedCancellation(
        "its task was cancelled by other code; nobody cancelled the run, so it counts as a failure"
    )
    return Failed(error, describe(error, train=train.name, external_id=run.external_id, junction=None))
