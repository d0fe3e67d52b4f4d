"""Execute a run that is only its train: no hooks, tracer, secrets or other process. Most runs are that.

`compile_runner` builds one coroutine function for each train. Nothing is made for a run that it does not use:
its token and the binding to its task are built when somebody asks for them (`ActiveRun.token`), and a
`TrainRun` when a junction fails, or needs more than values in memory.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from trax.errors import TraxError
from trax.records.result import ResultKind, RunResult
from trax.records.states import State
from trax.train import Cancelled, set_current
from trax.train.run import TrainRun

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from trax.store import Store
    from trax.store.runs.claim import Claimed
    from trax.train import Outcome, Train
    from trax.train.memory import Memory
    from trax.train.route import PlanStep
    from trax.worker.active_run import ActiveRun
    from trax.worker.job_runner import PreparedTrain
    from trax.worker.parts import Parts

    Runner: TypeAlias = Callable[[ActiveRun[Claimed]], Coroutine[Any, Any, RunResult]]

_new_result = cast("Any", tuple).__new__  # half the time of a call with 17 arguments
_SUCCESS = (State.COMPLETED, ResultKind.SUCCESS)
_NO_FAILURE = tuple(RunResult._field_defaults[name] for name in RunResult._fields[10:])


def can_compile(train: Train[Any, Any]) -> bool:
    """Whether all junctions of the train are async, and an error of each ends the run."""
    return all(step.is_async and not step.is_short_circuit for step in train.plan.steps)


def compile_runner(  # noqa: C901, PLR0915 - as below
    prepared: PreparedTrain,
    parts: Parts,
    store: Store,
    worker_id: int,
    *,
    invalid_result: Callable[[Claimed, TraxError], RunResult],
    other_result: Callable[[Claimed, PreparedTrain, Outcome[Any], str | None], RunResult],
) -> Runner:
    """The coroutine function that executes the runs of a train which `can_compile`, each in its own context.

    `invalid_result` builds the result of an input that cannot be decoded, `other_result` that of every
    outcome but success.
    """
    plan, run_log = prepared.train.plan, parts.run_log
    name, activator, count_run = prepared.train.name, parts.activator, parts.counters.count_run
    decode, input_to_save, output_to_save = (
        prepared.codec.decode,
        prepared.input_to_save,
        prepared.output_to_save,
    )
    steps, store_input, find_result = plan.steps, plan.store_input, plan.find_result
    only_junction, has_steps_to_observe = prepared.only_junction, prepared.has_steps_to_observe

    async def execute(run: ActiveRun[Claimed]) -> RunResult:  # noqa: C901, PLR0912 - every call costs time
        job = run.job
        text = job.input
        try:
            value = decode(text or "null")
        except TraxError as error:
            return invalid_result(job, error)
        run.activator = activator
        run.is_bound = True
        set_current(run)
        run_log.open_run(store, run)
        if text and (kept := input_to_save(text)) is not text:
            run.replaced_input = (kept,)
        if only_junction is not None:
            run.current = only_junction, run.began
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
                    if run.is_stop_requested:
                        run.token.raise_if_requested()
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
                outcome = _outcome_of(prepared.train, run, step, error)
            if rest is not None:
                outcome = await _run_rest(prepared.train, run, memory, rest)
        finally:
            run.is_bound = False
            if run.is_stop_requested:
                run.unbind()
            junctions = run_log.end_run(run)
            run_log.close_run(run)
        count_run(name, perf_counter() - run.began, job.waited_seconds)
        if outcome is not None:
            return other_result(job, prepared, outcome, junctions)
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
                *_NO_FAILURE,
            ),
        )

    return execute


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
        return Cancelled("its task was cancelled")


async def _run_rest(
    train: Train[Any, Any], run: ActiveRun[Claimed], memory: Memory, first: int
) -> Outcome[Any]:
    """Run the steps from this one on, which takes a service, a new instance or a tuple."""
    run.unbind()
    try:
        return await _train_run(train, run).resume(memory, first)
    except asyncio.CancelledError:
        return Cancelled("its task was cancelled")
