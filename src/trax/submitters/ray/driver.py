"""The inside of the process that speaks to Ray: reads questions, has them answered in the cluster."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final, TextIO

from trax.host.extras import needed
from trax.submitters.ray.yard import Yard

if TYPE_CHECKING:
    from collections.abc import Iterable

NAMESPACE: Final = "trax"
ANSWER_SECONDS: Final = 20


def main() -> None:
    """The whole life of the process: until nobody asks any more."""
    answers = _stdout_for_answers()
    config = json.loads(sys.stdin.readline())
    ray: Any = needed("ray", extra="ray", by="RayWorkers")
    _serve(Cluster(ray, config), sys.stdin, answers)


class Cluster:
    """The connection, made when it is first needed, and the actor that owns the tasks."""

    def __init__(self, ray: Any, config: dict[str, Any]) -> None:
        self._ray = ray
        self._config = config

    def answer(self, verb: str, what: list[Any]) -> dict[str, Any]:
        if not self._ray.is_initialized():
            self._ray.init(address=self._config["address"], namespace=NAMESPACE, log_to_driver=False)
        try:
            return self._asked(verb, what)
        except self._ray.exceptions.RayActorError:
            return self._asked(verb, what)  # the yard has died with its node; by now there is another

    def _asked(self, verb: str, what: list[Any]) -> dict[str, Any]:
        asked = getattr(self._yard(), verb).remote(self._config, what)
        return self._ray.get(asked, timeout=ANSWER_SECONDS)

    def _yard(self) -> Any:
        """The one that is there, or a new one. Detached, so that it lives on when we end."""
        return (
            self._ray.remote(Yard)
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


def _serve(cluster: Cluster, questions: Iterable[str], answers: TextIO) -> None:
    for line in questions:
        verb, what = json.loads(line)
        try:
            answer = cluster.answer(verb, what)
        except Exception as error:  # noqa: BLE001 - it is the answer
            answer = {"failed": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _stdout_for_answers() -> TextIO:
    """Ours alone: what Ray, or anybody else, prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


if __name__ == "__main__":
    main()
