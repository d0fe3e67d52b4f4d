"""The code in the cluster: an actor that owns and watches the tasks, and a task that executes a run."""

from __future__ import annotations

import asyncio
import atexit
import importlib
import time
from collections import deque
from contextlib import suppress
from functools import cache
from itertools import count
from typing import Any, Final, NamedTuple

from trax.engine.open_store import refuse_opening
from trax.errors import DefinitionError, import_extra
from trax.remote.receiver import ThreadReceiver

MOST_PROBLEMS: Final = 1_000
"""How many errors are kept until a scheduler has reported them."""


class TaskProblem(NamedTuple):
    """The error of a task that could not claim or execute its run, with a number that only grows."""

    number: int
    metadata_id: int
    reason: str


class TaskOwner:
    """The actor that owns the tasks. Ray ends tasks with their owner, so the owner is not a scheduler."""

    def __init__(self) -> None:
        self._ray: Any = import_extra("ray", extra="ray", feature="RayWorkers")
        self._tasks: dict[int, Any] = {}
        self._watchers: set[asyncio.Task[None]] = set()
        self._problems: deque[TaskProblem] = deque(maxlen=MOST_PROBLEMS)
        self._has_problems = asyncio.Event()
        self._numbers = count(time.time_ns())  # above those of an actor that died
        # Created once: Ray treats each one as another function, with its own processes and queue.
        self._execute: Any = self._ray.remote(execute)

    async def hand_over(
        self, config: dict[str, Any], runs: list[tuple[int, dict[str, Any]]]
    ) -> dict[str, Any]:
        """Start a task for each new run; returns refused runs."""
        refused: dict[str, str] = {}
        for metadata_id, resources in runs:
            if metadata_id in self._tasks:
                continue
            try:
                self._start_task(config, metadata_id, resources)
            except (TypeError, ValueError) as error:
                refused[str(metadata_id)] = f"Ray rejected the resources {resources}: {error}"
        return {"refused": refused}

    async def withdraw(self, _config: dict[str, Any], metadata_ids: list[int]) -> dict[str, Any]:
        """Cancel these tasks. One that starts anyway cannot claim its run."""
        for metadata_id in metadata_ids:
            if metadata_id in self._tasks:
                self._ray.cancel(self._tasks[metadata_id], force=False)
        return {"refused": {}}

    async def next_problems(self, reported: int, seconds: float) -> list[TaskProblem]:
        """Errors of ended tasks with a number above `reported`; waits up to `seconds` for the first one.

        A failed train is not a problem of its task.
        """
        while self._problems and self._problems[0].number <= reported:
            self._problems.popleft()
        if not self._problems:
            self._has_problems.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._has_problems.wait()
        return list(self._problems)

    def _start_task(self, config: dict[str, Any], metadata_id: int, resources: dict[str, Any]) -> None:
        options = self._execute.options(
            name=f"trax run {metadata_id}", runtime_env=config["runtime_env"] or None, **resources
        )
        self._tasks[metadata_id] = task = options.remote(config["app"], metadata_id)
        watcher = asyncio.create_task(self._watch(metadata_id, task))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)

    async def _watch(self, metadata_id: int, task: Any) -> None:
        """Wait until the task has ended, forget it, and keep its error."""
        try:
            await task
        except self._ray.exceptions.TaskCancelledError:
            pass
        except Exception as error:  # noqa: BLE001 - reported to the scheduler
            reason = str(error).strip().rpartition("\n")[2].strip()  # without traceback
            self._problems.append(TaskProblem(next(self._numbers), metadata_id, reason))
            self._has_problems.set()
        finally:
            del self._tasks[metadata_id]


def execute(app: str, metadata_id: int) -> bool:
    """Claim a run and execute it in this process; False if it was claimed elsewhere."""
    return _receiver(app).execute(metadata_id)


@cache
def _receiver(name: str) -> ThreadReceiver:
    """One receiver per process, which Ray gives one task after another."""
    module, _, attribute = name.partition(":")
    with refuse_opening("a task of Ray"):
        found: Any = getattr(importlib.import_module(module), attribute, None)
    if found is None:
        raise DefinitionError(f"{module} has no app named {attribute!r}")
    app: Any = found() if callable(found) else found
    resident = ThreadReceiver(app)
    atexit.register(resident.close)
    return resident
