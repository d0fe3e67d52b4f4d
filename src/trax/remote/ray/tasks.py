"""The code in the cluster: an actor that owns the tasks, and a task that claims and executes a run."""

from __future__ import annotations

import atexit
import importlib
from functools import cache
from typing import Any

from trax.errors import DefinitionError, import_extra
from trax.remote.receiver import ThreadReceiver


class TaskOwner:
    """The actor that owns the tasks. Ray ends tasks with their owner, so the owner is not a scheduler."""

    def __init__(self) -> None:
        self._ray: Any = import_extra("ray", extra="ray", feature="RayWorkers")
        self._tasks: dict[int, Any] = {}
        # Created once: Ray treats each one as another function, with its own processes and queue.
        self._execute: Any = self._ray.remote(execute)

    def hand_over(self, config: dict[str, Any], runs: list[tuple[int, dict[str, Any]]]) -> dict[str, Any]:
        """Start a task for each new run; returns refused runs, and problems of earlier tasks."""
        problems = self._problems()
        refused: dict[str, str] = {}
        for metadata_id, resources in runs:
            if metadata_id in self._tasks:
                continue
            try:
                self._tasks[metadata_id] = self._start_task(config, metadata_id, resources)
            except (TypeError, ValueError) as error:
                refused[str(metadata_id)] = f"Ray rejected the resources {resources}: {error}"
        return {"refused": refused, "problems": problems}

    def withdraw(self, _config: dict[str, Any], metadata_ids: list[int]) -> dict[str, Any]:
        """Cancel these tasks. One that starts anyway cannot claim its run."""
        for metadata_id in metadata_ids:
            if metadata_id in self._tasks:
                self._ray.cancel(self._tasks[metadata_id], force=False)
        return {"refused": {}, "problems": self._problems()}

    def _start_task(self, config: dict[str, Any], metadata_id: int, resources: dict[str, Any]) -> Any:
        task = self._execute.options(
            name=f"trax run {metadata_id}", runtime_env=config["runtime_env"] or None, **resources
        )
        return task.remote(config["app"], metadata_id)

    def _problems(self) -> list[tuple[int, str]]:
        """Errors of ended tasks, which are then forgotten. A failed train is not a problem of its task."""
        if not self._tasks:
            return []
        numbers = {task: metadata_id for metadata_id, task in self._tasks.items()}
        over, _ = self._ray.wait(list(numbers), num_returns=len(numbers), timeout=0, fetch_local=False)
        problems: list[tuple[int, str]] = []
        for task in over:
            metadata_id = numbers[task]
            del self._tasks[metadata_id]
            try:
                self._ray.get(task)
            except self._ray.exceptions.TaskCancelledError:
                pass
            except Exception as error:  # noqa: BLE001 - reported by the next call
                problems.append((metadata_id, str(error).strip().rpartition("\n")[2]))  # without traceback
        return problems


def execute(app: str, metadata_id: int) -> bool:
    """Claim a run and execute it in this process; False if it was claimed elsewhere."""
    return _receiver(app).execute(metadata_id)


@cache
def _receiver(name: str) -> ThreadReceiver:
    """One receiver per process, which Ray gives one task after another."""
    module, _, attribute = name.partition(":")
    found: Any = getattr(importlib.import_module(module), attribute, None)
    if found is None:
        raise DefinitionError(f"{module} has no app named {attribute!r}")
    app: Any = found() if callable(found) else found
    resident = ThreadReceiver(app)
    atexit.register(resident.close)
    return resident
