"""The driver process that is connected to Ray: passes requests to the cluster, and errors of tasks back."""

from __future__ import annotations

import json
import os
import sys
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Final, TextIO

from trax.errors import import_extra
from trax.remote.ray.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import Iterable


NAMESPACE: Final = "trax"

CALL_SECONDS: Final = 20

WATCH_SECONDS: Final = 60
"""How long one call waits for problems. The actor reports one at once."""

RETRY_SECONDS: Final = 2.0


def main() -> None:
    """Serve requests until stdin is closed."""
    writer = LineWriter(_take_stdout())
    config = json.loads(sys.stdin.readline())
    ray: Any = import_extra("ray", extra="ray", feature="RayWorkers")
    _serve(RayCluster(ray, config), sys.stdin, writer)


class LineWriter:
    """Writes one JSON document per line, from several threads."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._lock = Lock()

    def write(self, message: dict[str, Any]) -> None:
        with self._lock:
            self._output.write(json.dumps(message) + "\n")
            self._output.flush()


class RayCluster:
    """The connection to Ray, opened at the first call, and the actor that owns the tasks."""

    def __init__(self, ray: Any, config: dict[str, Any]) -> None:
        self._ray = ray
        self._config = config

    def call(self, verb: str, arguments: list[Any]) -> dict[str, Any]:
        if not self._ray.is_initialized():
            self._connect()
        try:
            return self._call_owner(verb, arguments)
        except self._ray.exceptions.RayActorError:
            return self._call_owner(verb, arguments)  # the actor died with its node; Ray has created another

    def load_problems(self, reported: int) -> list[tuple[int, int, str]]:
        """Wait for errors of tasks; returns an empty list after `WATCH_SECONDS`."""
        result = self._task_owner().next_problems.remote(reported, WATCH_SECONDS)
        return self._ray.get(result, timeout=WATCH_SECONDS + CALL_SECONDS)

    def _connect(self) -> None:
        """Connect, and upload local folders, which only `ray.init` accepts; tasks get their addresses."""
        wanted = self._config["runtime_env"] or None
        address = self._config["address"]
        self._ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, runtime_env=wanted)
        if wanted:
            self._config["runtime_env"] = dict(self._ray.get_runtime_context().runtime_env)

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


def _serve(cluster: RayCluster, requests: Iterable[str], writer: LineWriter) -> None:
    watcher = Thread(target=_report_problems, args=(cluster, writer), name="trax ray problems", daemon=True)
    for line in requests:
        verb, what = json.loads(line)
        try:
            answer = cluster.call(verb, what)
        except Exception as error:  # noqa: BLE001 - sent as the response
            answer = {"failed": f"{type(error).__name__}: {error}"}
        writer.write(answer)
        if "failed" not in answer and watcher.ident is None:
            watcher.start()


def _report_problems(cluster: RayCluster, writer: LineWriter) -> None:
    """Write each error of a task as soon as the actor has it."""
    reported, pause = 0, Event()
    while True:
        try:
            problems = cluster.load_problems(reported)
        except Exception:  # noqa: BLE001 - the next request reports that the cluster is gone
            pause.wait(RETRY_SECONDS)
            continue
        for number, metadata_id, reason in problems:
            writer.write({"problem": [metadata_id, reason]})
            reported = number


def _take_stdout() -> TextIO:
    """Reserve stdout for responses: output of Ray and others goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


if __name__ == "__main__":
    main()
