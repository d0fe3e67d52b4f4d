"""The driver process that is connected to Ray: reads requests and passes them on to the cluster."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final, TextIO

from trax.errors import import_extra
from trax.remote.ray.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import Iterable


NAMESPACE: Final = "trax"

CALL_SECONDS: Final = 20


def main() -> None:
    """Serve requests until stdin is closed."""
    answers = _take_stdout()
    config = json.loads(sys.stdin.readline())
    ray: Any = import_extra("ray", extra="ray", feature="RayWorkers")
    _serve(RayCluster(ray, config), sys.stdin, answers)


class RayCluster:
    """The connection to Ray, opened at the first call, and the actor that owns the tasks."""

    def __init__(self, ray: Any, config: dict[str, Any]) -> None:
        self._ray = ray
        self._config = config

    def call(self, verb: str, arguments: list[Any]) -> dict[str, Any]:
        if not self._ray.is_initialized():
            self._ray.init(address=self._config["address"], namespace=NAMESPACE, log_to_driver=False)
        try:
            return self._call_owner(verb, arguments)
        except self._ray.exceptions.RayActorError:
            return self._call_owner(verb, arguments)  # the actor died with its node; Ray has created another

    def _call_owner(self, verb: str, arguments: list[Any]) -> dict[str, Any]:
        result = getattr(self._task_owner(), verb).remote(self._config, arguments)
        return self._ray.get(result, timeout=CALL_SECONDS)

    def _task_owner(self) -> Any:
        """The existing actor, or a new one. Detached, so that it outlives this process."""
        return (
            self._ray.remote(TaskOwner)
            .options(
                name=f"trax-{self._config['name']}",
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                max_restarts=0,
                runtime_env=self._config["runtime_env"] or None,
            )
            .remote()
        )


def _serve(cluster: RayCluster, requests: Iterable[str], responses: TextIO) -> None:
    for line in requests:
        verb, what = json.loads(line)
        try:
            answer = cluster.call(verb, what)
        except Exception as error:  # noqa: BLE001 - sent as the response
            answer = {"failed": f"{type(error).__name__}: {error}"}
        responses.write(json.dumps(answer) + "\n")
        responses.flush()


def _take_stdout() -> TextIO:
    """Reserve stdout for responses: output of Ray and others goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


if __name__ == "__main__":
    main()
