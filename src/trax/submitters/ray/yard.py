"""In the cluster: the actor that owns the tasks, and the task that takes a run up and sees it through."""

from __future__ import annotations

import atexit
import importlib
from functools import cache
from typing import Any

from trax.errors import DefinitionError
from trax.host.extras import needed
from trax.submitters.resident import Resident


class Yard:
    """Owns the tasks. Ray ends tasks with whoever asked for them, and schedulers come and go."""

    def __init__(self) -> None:
        self._ray: Any = needed("ray", extra="ray", by="RayWorkers")
        self._tasks: dict[int, Any] = {}
        # Made once: each one made is another function to Ray, whose tasks share no process and no queue.
        self._execute: Any = self._ray.remote(execute)

    def hand_over(self, config: dict[str, Any], runs: list[tuple[int, dict[str, Any]]]) -> dict[str, Any]:
        """Make a task of each run that is not here yet; says who was refused, and what went wrong before."""
        problems = self._problems()
        refused: dict[str, str] = {}
        for metadata_id, resources in runs:
            if metadata_id in self._tasks:
                continue
            try:
                self._tasks[metadata_id] = self._begun(config, metadata_id, resources)
            except (TypeError, ValueError) as error:
                refused[str(metadata_id)] = f"Ray refused {resources}: {error}"
        return {"refused": refused, "problems": problems}

    def withdraw(self, _config: dict[str, Any], metadata_ids: list[int]) -> dict[str, Any]:
        """Take these out of Ray's queue. Whether one may still begin is for its record to say."""
        for metadata_id in metadata_ids:
            if metadata_id in self._tasks:
                self._ray.cancel(self._tasks[metadata_id], force=False)
        return {"refused": {}, "problems": self._problems()}

    def _begun(self, config: dict[str, Any], metadata_id: int, resources: dict[str, Any]) -> Any:
        task = self._execute.options(
            name=f"trax run {metadata_id}", runtime_env=config["runtime_env"] or None, **resources
        )
        return task.remote(config["app"], metadata_id)

    def _problems(self) -> list[tuple[int, str]]:
        """What went wrong with tasks that are over; they are forgotten. A train that fails is no problem."""
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
            except Exception as error:  # noqa: BLE001 - told to whoever asks next
                problems.append((metadata_id, str(error).strip().rpartition("\n")[2]))  # above is a traceback
        return problems


def execute(app: str, metadata_id: int) -> bool:
    """Take a run up in this process, and stay until it has ended; False when somebody else has it."""
    return _resident(app).execute(metadata_id)


@cache
def _resident(name: str) -> Resident:
    """One for as long as the process lives; Ray gives it one task after another."""
    module, _, attribute = name.partition(":")
    found: Any = getattr(importlib.import_module(module), attribute, None)
    if found is None:
        raise DefinitionError(f"{module} has no app named {attribute!r}")
    app: Any = found() if callable(found) else found
    resident = Resident(app)
    atexit.register(resident.close)
    return resident
